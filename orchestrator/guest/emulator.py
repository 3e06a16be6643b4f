# SPDX-License-Identifier: GPL-2.0-only
"""Which QEMU is on this host? Its version, and the CPU models that it has."""

from __future__ import annotations

import re
from functools import lru_cache

from orchestrator.errors import HostError
from orchestrator.process import run

QEMU = "qemu-system-x86_64"
_ANSWER_LIMIT = 15.0


@lru_cache(maxsize=1)
def qemu_version() -> str:
    """QEMU's own first line. Raises HostError where there is none."""
    finished = run([QEMU, "--version"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0 or not finished.stdout:
        raise HostError("QEMU does not run", detail=finished.complaint())
    return finished.stdout.splitlines()[0]


def qemu_release() -> tuple[int, int]:
    """QEMU's release, as (7, 2). Raises HostError where there is no QEMU, or one that prints no version."""
    found = re.search(r"version (\d+)\.(\d+)", qemu_version())
    if found is None:
        raise HostError("QEMU prints no version", detail=[qemu_version()], hint="reinstall qemu-system-x86")
    return int(found[1]), int(found[2])


@lru_cache(maxsize=1)
def qemu_cpu_names() -> frozenset[str]:
    """The CPU models that QEMU itself has. Raises HostError where there is no QEMU."""
    finished = run([QEMU, "-cpu", "help"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0:
        raise HostError("QEMU does not list its CPU models", detail=finished.complaint())
    listed = finished.stdout.split("Recognized CPUID flags")[0]
    return frozenset(re.findall(r"^(?:x86 )? *([A-Za-z0-9][A-Za-z0-9_.-]*)(?: |$)", listed, re.MULTILINE))
