# SPDX-License-Identifier: GPL-2.0-only
"""Where is the CPU of a guest that hangs? Its kernel says so when it is interrupted by an NMI, and panics.

That is how all guests boot (``unknown_nmi_panic``). An NMI comes through where interrupts are off, and the kernel knows
its modules' symbols.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError
from orchestrator.guest.console import Console
from orchestrator.guest.monitor import Monitor
from orchestrator.process import Spawned

_SILENCE = 2.0
"""Seconds without a new line on the console after which the kernel is not expected to say more."""

_PAUSE = 0.02

_LOOKS = 3
_POINTER = re.compile(r"\b[ER]IP=([0-9a-f]{8,16})\b")
"""Where a CPU is, as QEMU's `info registers` says it (target/i386/cpu-dump.c)."""


def interrupt(monitor: Monitor, process: Spawned, console: Console) -> str:
    """Send the guest an NMI, and wait until its kernel has said where it was, or does not say it.

    The guest has panicked then, which ends QEMU. Returns where QEMU has the CPUs of a kernel that says nothing, as in a
    fault of its handler of faults, as the end of a sentence. Nothing is sent where QEMU itself is stopped.
    """
    if process.poll() is not None or is_stopped(process.pid):
        return ""
    before = printed = console.length()
    with contextlib.suppress(GuestError):  # it is gone, or does not answer
        monitor.command("inject-nmi")
    quiet = Deadline(_SILENCE)
    while process.poll() is None and quiet.left():
        time.sleep(_PAUSE)
        if (length := console.length()) > printed:
            printed, quiet = length, Deadline(_SILENCE)
    return _places(monitor) if process.poll() is None and printed == before else ""


def _places(monitor: Monitor) -> str:
    places: dict[str, None] = {}  # in their order
    with contextlib.suppress(GuestError):
        for _ in range(_LOOKS):
            places |= dict.fromkeys(_POINTER.findall(monitor.human("info registers -a")))
            time.sleep(_PAUSE)
    return f"; it does not answer an NMI, and executes at {', '.join(places)}" if places else ""


def is_stopped(process: int) -> bool:
    """Whether a process is stopped by a signal or a tracer: the first field behind its name in proc(5)'s stat."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
