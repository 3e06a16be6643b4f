# SPDX-License-Identifier: GPL-2.0-only
"""Waits for the agent of a guest that boots, or does its work first, while what it prints is passed on.

A kernel whose boot stub refuses the CPU ends the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestHang
from orchestrator.guest.boot_stub import BootStub
from orchestrator.guest.console import Console
from orchestrator.guest.framed import FramedChannel

LONGEST_WORK = 24 * 3600.0
"""Seconds that unattended work may take, whatever the guest prints meanwhile."""

_LISTENING_INTERVAL = 0.5


Listener = Callable[[Sequence[str]], None]
"""Gets the console's new lines twice a second: none while the guest prints nothing."""


def wait_for_boot(agent: FramedChannel, stub: BootStub, deadline: Deadline) -> None:
    """Wait for the agent. Raises GuestHang at the deadline, UnsupportedError for a CPU that the kernel refuses."""
    while True:
        try:
            return agent.wait_for_agent(Deadline(_LISTENING_INTERVAL))
        except GuestHang:
            stub.check()
            if not deadline.left():
                raise


def watch_boot(agent: FramedChannel, console: Console, stub: BootStub, time_limit: float, listener: Listener) -> None:
    """Wait for the agent; the listener gets every line of the console.

    Raises GuestHang after ``time_limit`` seconds without console output, UnsupportedError for a CPU that the kernel
    refuses.
    """
    deadline, last = Deadline(time_limit), Deadline(LONGEST_WORK)
    passed_on, printed, waiting = 0, 0, True
    while waiting:
        try:
            agent.wait_for_agent(Deadline(_LISTENING_INTERVAL))
            waiting = False
        except GuestHang:
            stub.check()
        finally:  # also the last lines of a guest that dies
            lines, passed_on = console.whole_lines(passed_on)
            listener(lines)
        length = console.length()
        if length > printed:
            printed, deadline = length, Deadline(time_limit)
        if waiting and not deadline.left():
            raise GuestHang(f"no console output for {time_limit:g} s")
        if waiting and not last.left():
            raise GuestHang(f"it is still at work after {LONGEST_WORK / 3600:g} hours, the most that are allowed")
