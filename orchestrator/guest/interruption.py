# SPDX-License-Identifier: GPL-2.0-only
"""Where the CPU of a hanging guest is: an NMI makes the kernel print it and panic.

All guests boot with ``unknown_nmi_panic``. An NMI works even with interrupts off, and the kernel knows its modules'
symbols.
"""

from __future__ import annotations

import contextlib
import re
import time

from orchestrator.errors import (
    GuestError,
)
from orchestrator.guest.console import (
    Console,
)
from orchestrator.guest.monitor import Monitor
from orchestrator.process import Spawned, stat_fields

_HANG_SILENCE = 2.0
"""Seconds without a new console line after which the kernel is done."""


_PAUSE = 0.02


_LOOKS = 3


_POINTER = re.compile(r"\b[ER]IP=([0-9a-f]{8,16})\b")
"""A CPU's instruction pointer in QEMU's `info registers` (target/i386/cpu-dump.c)."""


def interrupt(monitor: Monitor, process: Spawned, console: Console) -> str:
    """Send the guest an NMI, and wait until its kernel has printed where it was, or stays silent.

    The panic ends QEMU. If the kernel stays silent, as in a fault of its fault handler, returns the CPUs' places from
    QEMU, worded as the end of a sentence. Sends nothing if QEMU itself is stopped.
    """
    if process.poll() is not None or is_stopped(process.pid):
        return ""
    before = console.length()
    with contextlib.suppress(GuestError):  # QEMU is gone, or does not answer
        monitor.command("inject-nmi")
    for _ in console.printing(_HANG_SILENCE, lambda: process.poll() is not None):
        pass
    if process.poll() is not None or console.length() > before:
        return ""
    places: dict[str, None] = {}  # an ordered set
    with contextlib.suppress(GuestError):
        for _ in range(_LOOKS):
            places |= dict.fromkeys(_POINTER.findall(monitor.human("info registers -a")))
            time.sleep(_PAUSE)
    return f"; it does not answer an NMI, and executes at {', '.join(places)}" if places else ""


def is_stopped(process: int) -> bool:
    """Whether a process is stopped by a signal or tracer."""
    return stat_fields(process)[:1] in (["T"], ["t"])
