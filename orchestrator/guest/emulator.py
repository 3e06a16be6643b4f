# SPDX-License-Identifier: GPL-2.0-only
"""Which QEMU is on this host? Its version, and the CPU models that it has."""

from __future__ import annotations

import re
from functools import lru_cache

from orchestrator.errors import HostError
from orchestrator.guest.machine import QEMU
from orchestrator.process import run

_ANSWER_LIMIT = 15.0


@lru_cache(maxsize=1)
def qemu_version() -> str:
    """QEMU's own first line. Raises HostError where there is none."""
    finished = run([QEMU, "--version"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0 or not finished.stdout:
        raise HostError("QEMU does not run", detail=finished.complaint())
    return finished.stdout.splitlines()[0]


@lru_cache(maxsize=1)
def qemu_cpu_names() -> frozenset[str]:
    """The CPU models that QEMU itself has. Raises HostError where there is no QEMU."""
    finished = run([QEMU, "-cpu", "help"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0:
        raise HostError("QEMU does not list its CPU models", detail=finished.complaint())
    listed = finished.stdout.split("Recognized CPUID flags")[0]
    return frozenset(re.findall(r"^(?:x86 )? *([A-Za-z0-9][A-Za-z0-9_.-]*)(?: |$)", listed, re.MULTILINE))
