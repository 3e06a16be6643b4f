# SPDX-License-Identifier: GPL-2.0-only
"""Configurations of kernels: merged from fragments, checked against what was built, and read for what probes need."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from orchestrator.catalog.kernels import SET_OPTION, KernelSpec
from orchestrator.paths import data_dir

_UNSET = re.compile(r"^# (CONFIG_\w+) is not set$", re.MULTILINE)

MAINLINE_HASH_BITS = "6"
"""The value of kernels without the option: KPROBE_HASH_BITS of kernel/kprobes.c, since 2.6.9."""

_PREEMPTION = {
    "CONFIG_PREEMPT_VOLUNTARY": "voluntary",
    "CONFIG_PREEMPT": "full",
    "CONFIG_PREEMPT_LAZY": "lazy",  # since Linux 6.13 (commit 7c70cb94d29c)
    "CONFIG_PREEMPT_RT": "real time",
    "CONFIG_PREEMPT_DYNAMIC": "dynamic",  # selected at boot; the code is that of a preemptible kernel
}


def merged(spec: KernelSpec) -> str:
    """A kernel's fragments of ``images/kernels`` and its own options; later lines override earlier ones."""
    folder = data_dir("images") / "kernels"
    text = "".join((folder / f"{name}.config").read_text() for name in spec.fragments)
    lines = [(line, SET_OPTION.match(line) or _UNSET.match(line)) for line in text.splitlines(keepends=True)]
    return "".join(line for line, option in lines if option is None or option[1] not in spec.without) + spec.options


def not_granted(merged_config: str, config: Mapping[str, str]) -> list[str]:
    """The options that the build system did not set as the fragments ask, each with its value."""
    last = {
        (match[1] or match[3]): match[2]
        for match in re.finditer(f"{SET_OPTION.pattern}|{_UNSET.pattern}", merged_config, re.M)
    }
    return [
        f"{option}: wanted {value or 'off'}, got {config.get(option, 'off')}"
        for option, value in last.items()
        if config.get(option) != value
    ]


def features(config: Mapping[str, str]) -> dict[str, str]:
    """The kernel features that matter to probes, from its configuration."""

    def has(option: str) -> str:
        return "yes" if config.get(option) == "y" else "no"

    return {
        "booster": "no" if has("CONFIG_PREEMPTION") == "yes" else has("CONFIG_KPROBES"),
        "optprobes": has("CONFIG_OPTPROBES"),
        "ftrace": has("CONFIG_FUNCTION_TRACER"),
        "preemption": ["none", *(name for option, name in _PREEMPTION.items() if has(option) == "yes")][-1],
        "hook": has("CONFIG_LAB_SYSCALL_HOOK"),
        "markers": has("CONFIG_LAB_MARKERS"),
        "kprobe lists": f"2^{config.get('CONFIG_KPROBE_HASH_BITS', MAINLINE_HASH_BITS)}",
        "kprobe cache": has("CONFIG_KPROBE_CACHE"),
        "HZ": config.get("CONFIG_HZ", "?"),
        "SMP": has("CONFIG_SMP"),
    }


def has_types(config: str) -> bool:
    """Whether a configuration includes type information (BTF)."""
    return "CONFIG_DEBUG_INFO_BTF=y" in config.splitlines()


_IMPLIED = "implied-options.json"


def write_implied(folder: Path, spec: KernelSpec, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Write down the options that differ from the plain kernel's, but for those that the variant names."""
    named = {match[1] for line in spec.options.splitlines() if (match := SET_OPTION.match(line) or _UNSET.match(line))}
    differing = sorted(option for option in {**before, **after} if before.get(option) != after.get(option))
    changes = {option: after.get(option, "n") for option in differing if option not in named}
    (folder / _IMPLIED).write_text(json.dumps(changes))


def implied_options(built: Path) -> Mapping[str, str]:
    """What a variant's own options changed besides themselves, with the new values; empty for other kernels."""
    file = built / _IMPLIED
    changes: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return changes
