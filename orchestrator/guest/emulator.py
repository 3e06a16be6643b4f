# SPDX-License-Identifier: GPL-2.0-only
"""Which QEMU is on this host? Its version, and the CPU models that it has."""

from __future__ import annotations

import re
from functools import lru_cache

from orchestrator.errors import HostError
from orchestrator.process import run
from orchestrator.program import PROGRAM

QEMU = "qemu-system-x86_64"

OLDEST_QEMU = (7, 0)
"""The first release with the pinned machine type."""

_ANSWER_LIMIT = 15.0
_VERSION = re.compile(r"version (\d+)\.(\d+)")
_HINT = (
    f"install QEMU {OLDEST_QEMU[0]}.{OLDEST_QEMU[1]} or newer (Debian: qemu-system-x86); `{PROGRAM} doctor` examines it"
)


@lru_cache(maxsize=1)
def qemu_version() -> str:
    """QEMU's own first line. Raises HostError where there is none, one that does not run, or one that is too old."""
    finished = run([QEMU, "--version"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0 or not finished.stdout:
        raise HostError(f"QEMU does not run (status {finished.status})", detail=finished.complaint(), hint=_HINT)
    line = finished.stdout.splitlines()[0]
    if _release(line) < OLDEST_QEMU:
        raise HostError(f"the host's QEMU is too old: {line}", hint=_HINT)
    return line


def qemu_release() -> tuple[int, int]:
    """QEMU's release, as (7, 2). Raises HostError as ``qemu_version`` does."""
    return _release(qemu_version())


def _release(line: str) -> tuple[int, int]:
    found = _VERSION.search(line)
    if found is None:
        raise HostError("QEMU prints no version", detail=[line], hint=_HINT)
    return int(found[1]), int(found[2])


@lru_cache(maxsize=1)
def qemu_cpu_names() -> frozenset[str]:
    """The CPU models that QEMU itself has. Raises HostError where there is no QEMU."""
    finished = run([QEMU, "-cpu", "help"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0:
        what = f"QEMU does not list its CPU models (status {finished.status})"
        raise HostError(what, detail=finished.complaint(), hint=_HINT)
    listed = finished.stdout.split("Recognized CPUID flags")[0]
    return frozenset(re.findall(r"^(?:x86 )? *([A-Za-z0-9][A-Za-z0-9_.-]*)(?: |$)", listed, re.MULTILINE))
