# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's configuration: merged from fragments, checked, and read for the features that probes need."""

from __future__ import annotations

import re
from collections.abc import Mapping

from orchestrator.catalog.kernels import KernelSpec
from orchestrator.errors import BuildError
from orchestrator.paths import data_dir

_SET = re.compile(r"^(CONFIG_\w+)=(.*)$", re.MULTILINE)
_UNSET = re.compile(r"^# (CONFIG_\w+) is not set$", re.MULTILINE)

MAINLINE_HASH_BITS = "6"
"""Where a kernel has no option for it: KPROBE_HASH_BITS of kernel/kprobes.c, since 2.6.9."""

_PREEMPTION = {
    "CONFIG_PREEMPT_VOLUNTARY": "voluntary",
    "CONFIG_PREEMPT": "full",
    "CONFIG_PREEMPT_LAZY": "lazy",  # since Linux 6.13 (commit 7c70cb94d29c)
    "CONFIG_PREEMPT_RT": "real time",
    "CONFIG_PREEMPT_DYNAMIC": "dynamic",  # chosen when it boots; the code is that of a preemptible kernel
}


def merged(spec: KernelSpec) -> str:
    """A kernel's fragments of ``images/kernels`` one after the other; a later one has the last word."""
    folder = data_dir("images") / "kernels"
    text = "".join((folder / f"{name}.config").read_text() for name in spec.fragments)
    return "".join(line for line in text.splitlines(keepends=True) if _option(line) not in spec.without)


def _option(line: str) -> str | None:
    found = _SET.match(line) or _UNSET.match(line)
    return found[1] if found is not None else None


def not_granted(wanted: str, config: Mapping[str, str]) -> list[str]:
    """The options that the kernel's build system did not take as the fragments have them, each with what it has."""
    last: dict[str, str | None] = {}
    for line in wanted.splitlines():
        if found := _SET.match(line):
            last[found[1]] = found[2]
        elif found := _UNSET.match(line):
            last[found[1]] = None
    return [
        f"{option}: wanted {value or 'off'}, got {config.get(option, 'off')}"
        for option, value in last.items()
        if config.get(option) != value
    ]


def check_granted(wanted: str, config: Mapping[str, str], name: str) -> None:
    """Raise BuildError where an option is not as the fragments have it."""
    refused = not_granted(wanted, config)
    if refused:
        raise BuildError(
            f"the configuration of {name} is not what its fragments say",
            detail=refused[:20],
            hint="an option may depend on another one that is off, or have another name in this version",
        )


def features(config: Mapping[str, str]) -> dict[str, str]:
    """What matters to probes, by the kernel's own configuration."""

    def has(option: str) -> bool:
        return config.get(option) == "y"

    preemption = "none"
    for option, name in _PREEMPTION.items():
        preemption = name if has(option) else preemption
    return {
        "booster": "yes" if has("CONFIG_KPROBES") and not has("CONFIG_PREEMPTION") else "no",
        "optprobes": "yes" if has("CONFIG_OPTPROBES") else "no",
        "ftrace": "yes" if has("CONFIG_FUNCTION_TRACER") else "no",
        "preemption": preemption,
        "hook": "yes" if has("CONFIG_LAB_SYSCALL_HOOK") else "no",
        "markers": "yes" if has("CONFIG_LAB_MARKERS") else "no",
        "kprobe lists": f"2^{config.get('CONFIG_KPROBE_HASH_BITS', MAINLINE_HASH_BITS)}",
        "kprobe cache": "yes" if has("CONFIG_KPROBE_CACHE") else "no",
        "HZ": config.get("CONFIG_HZ", "?"),
        "SMP": "yes" if has("CONFIG_SMP") else "no",
    }
