# SPDX-License-Identifier: GPL-2.0-only
"""What the host's QEMU is and can do: its version, its CPU models, its plugins."""

from __future__ import annotations

import re
from functools import lru_cache

from orchestrator.arch import QEMU
from orchestrator.errors import HostError
from orchestrator.process import run
from orchestrator.program import PROGRAM

OLDEST_QEMU = (7, 0)
"""The first release with the pinned machine type."""

_ANSWER_LIMIT = 15.0
_VERSION = re.compile(r"version (\d+)\.(\d+)")
_HINT = (
    f"install QEMU {OLDEST_QEMU[0]}.{OLDEST_QEMU[1]} or newer (Debian: qemu-system-x86); `{PROGRAM} doctor` checks it"
)


@lru_cache(maxsize=1)
def qemu_version() -> str:
    """QEMU's version line. Raises HostError if QEMU is missing, does not run, or is too old."""
    finished = run([QEMU, "--version"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0 or not finished.stdout:
        raise HostError(f"QEMU does not run (status {finished.status})", detail=finished.complaint(), hint=_HINT)
    line = finished.stdout.splitlines()[0]
    if qemu_release(line) < OLDEST_QEMU:
        raise HostError(f"the host's QEMU is too old: {line}", hint=_HINT)
    return line


def qemu_release(line: str) -> tuple[int, int]:
    """The major and minor number in a version line. Raises HostError if it has none."""
    match = _VERSION.search(line)
    if match is None:
        raise HostError("QEMU prints no version", detail=[line], hint=_HINT)
    return int(match[1]), int(match[2])


_FAIR_TO_CPUS = (8, 1)
"""Since commit 83ecdb18eb65 each CPU has a part of the time to the next timer; before, one could use all of it up."""


def executes_spinning_cpus_in_turns() -> bool:
    """Whether QEMU executes all CPUs of the exact clock while one of them waits for another, without a ``pause``."""
    return qemu_release(qemu_version()) >= _FAIR_TO_CPUS


@lru_cache(maxsize=1)
def qemu_cpu_names() -> frozenset[str]:
    """QEMU's CPU models. Raises HostError if QEMU is missing."""
    finished = run([QEMU, "-cpu", "help"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0:
        what = f"QEMU does not list its CPU models (status {finished.status})"
        raise HostError(what, detail=finished.complaint(), hint=_HINT)
    listed = finished.stdout.split("Recognized CPUID flags")[0]
    return frozenset(re.findall(r"^(?:x86 )? *([A-Za-z0-9][A-Za-z0-9_.-]*)(?: |$)", listed, re.MULTILINE))


@lru_cache(maxsize=1)
def qemu_has_plugins() -> bool:
    """Whether QEMU was built with plugins, as Debian's is."""
    return "\n-plugin " in run([QEMU, "-help"], time_limit=_ANSWER_LIMIT).stdout
