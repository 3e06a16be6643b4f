# SPDX-License-Identifier: GPL-2.0-only
"""Waits for the agent of a guest that boots, or does its work first, while what it prints is passed on.

A kernel whose boot stub refuses the CPU ends the wait. A guest that works alone stops itself before its work, by QEMU's
pvpanic device: at that instruction, so that what it executes does not depend on when the host looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestHang
from orchestrator.guest.boot_stub import BootStub
from orchestrator.guest.console import Console
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.monitor import Monitor

LONGEST_WORK = 24 * 3600.0
"""Seconds that unattended work may take, whatever the guest prints meanwhile."""

_LISTENING_INTERVAL = 0.5


_STOPPING_INTERVAL = 0.1
"""The same until a guest has stopped itself: it does nothing while nobody looks."""


Listener = Callable[[Sequence[str]], None]
"""Gets the console's new lines some times a second: none while the guest prints nothing."""


class OwnStop:
    """The stop of a guest before its work, where its machine has the device for it; ``read`` is called meanwhile."""

    def __init__(self, monitor: Monitor, read: Callable[[], None], *, is_expected: bool) -> None:
        self._monitor, self._read = monitor, read
        self._is_watched = self.is_expected = is_expected

    @property
    def interval(self) -> float:
        """Seconds until the next look."""
        return _STOPPING_INTERVAL if self.is_expected else _LISTENING_INTERVAL

    def check(self) -> None:
        """Let a guest that has stopped itself go on. One that stops once more has panicked, and is ended."""
        match self._monitor.command("query-status") if self._is_watched else None:
            case {"status": "guest-panicked"} if self.is_expected:
                self._read()
                self.is_expected = False
                self._monitor.command("cont")
            case {"status": "guest-panicked"}:
                self._monitor.command("quit")


def wait_for_boot(agent: FramedChannel, stub: BootStub, stop: OwnStop, deadline: Deadline) -> None:
    """Wait for the agent. Raises GuestHang at the deadline, UnsupportedError for a CPU that the kernel refuses."""
    while True:
        try:
            return agent.wait_for_agent(Deadline(stop.interval))
        except GuestHang:
            stub.check()
            stop.check()
            if not deadline.left():
                raise


def watch_boot(
    agent: FramedChannel, console: Console, stub: BootStub, stop: OwnStop, time_limit: float, listener: Listener
) -> None:
    """Wait for the agent; the listener gets every line of the console.

    Raises GuestHang after ``time_limit`` seconds without console output, UnsupportedError for a CPU that the kernel
    refuses.
    """
    deadline, last = Deadline(time_limit), Deadline(LONGEST_WORK)
    passed_on, printed, waiting = 0, 0, True
    while waiting:
        try:
            agent.wait_for_agent(Deadline(stop.interval))
            waiting = False
        except GuestHang:
            stub.check()
            stop.check()
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
