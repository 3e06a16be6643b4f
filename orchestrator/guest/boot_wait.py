# SPDX-License-Identifier: GPL-2.0-only
"""Waiting for the agent of a guest that boots, or first does its unattended work, while passing on the console.

A boot stub that refuses the CPU ends the wait. A guest with unattended work stops itself before it, through QEMU's
pvpanic device: at that exact instruction, so that what it executes does not depend on when the host looks.
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
"""Limit of seconds for unattended work, whatever the guest prints meanwhile."""


_LISTENING_INTERVAL = 0.5


_STOPPING_INTERVAL = 0.1
"""The same until a guest has stopped itself, as it does nothing until the host looks."""


BootListener = Callable[[Sequence[str]], None]
"""Receives the console's new lines a few times per second, possibly none."""


class StopBeforeWork:
    """A guest's stop before its work, if its machine has the device for it; ``read`` is called meanwhile."""

    def __init__(self, monitor: Monitor, read: Callable[[], None], *, is_expected: bool) -> None:
        self._monitor, self._read = monitor, read
        self._is_watched = self.is_expected = is_expected

    def check(self) -> None:
        """Continue a guest that has stopped itself. One that stops a second time has panicked, and is ended."""
        if self._is_watched and self._monitor.status() == "guest-panicked":
            if self.is_expected:
                self._read()
            self._monitor.command("cont" if self.is_expected else "quit")
            self.is_expected = False


def wait_for_boot(
    agent: FramedChannel,
    console: Console,
    stub: BootStub,
    stop: StopBeforeWork,
    time_limit: float,
    listener: BootListener | None = None,
) -> None:
    """Wait for the agent. Raises GuestHang after ``time_limit``, UnsupportedError for a CPU that the kernel refuses.

    A ``listener`` receives every console line; with it, new output restarts the time limit.
    """
    deadline, last = Deadline(time_limit), Deadline(LONGEST_WORK)
    passed_on = printed = 0
    while True:
        try:
            return agent.wait_for_agent(Deadline(_STOPPING_INTERVAL if stop.is_expected else _LISTENING_INTERVAL))
        except GuestHang:
            stub.check()
            stop.check()
            if listener is None and not deadline.left():
                raise
        finally:  # reads the last lines of a dying guest too
            if listener is not None:
                lines, passed_on = console.whole_lines(passed_on)
                listener(lines)
        if listener is None:
            continue
        if (length := console.length()) > printed:
            printed, deadline = length, Deadline(time_limit)
        if not deadline.left():
            raise GuestHang(f"no console output for {time_limit:g} s")
        if not last.left():
            raise GuestHang(f"it is still working after {LONGEST_WORK / 3600:g} hours, the limit")
