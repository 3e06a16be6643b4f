# SPDX-License-Identifier: GPL-2.0-only
"""Has a guest's kernel panicked without a restart? Its QEMU is ended then, and whoever waits for the guest learns it.

A panic ends QEMU by itself as a rule (``panic=-1`` restarts at once, and QEMU has -no-reboot). It does not where the
guest has set ``kernel.panic`` to seconds, and where the panic itself fails: Linux 6.1 on i686 hangs in it after a
double fault. Without a watch only a command's time limit ends that.

Programs can print what looks like a panic, so a CPU has to stay in the kernel with its interrupts off as well, by
QEMU's registers. That is not so where a guest has set ``kernel.panic`` to 0: panic() enables interrupts then.
"""

from __future__ import annotations

import re
import threading

from orchestrator.errors import GuestError
from orchestrator.guest.console import Console
from orchestrator.guest.kernel_reports import Trouble, sign_in
from orchestrator.guest.monitor import Monitor

_INTERVAL = 0.2
"""Seconds between two looks at the console."""

_LOOKS = 5
_PAUSE = 0.1
"""Looks at the registers that find a CPU so, without a new byte on the console, and the seconds between two."""

# x86_cpu_dump_state() of QEMU 7.2 and 10.0, target/i386/cpu-dump.c.
_CPU = re.compile(
    r"\b[ER]FL=(?P<flags>[0-9a-f]{8}) \[[^\]]{1,10}\] CPL=(?P<ring>\d) II=\d A20=\d SMM=\d HLT=(?P<halted>\d)"
)
_INTERRUPTS = 0x200


class PanicWatch:
    """Watches a guest's console until it is stopped, or has ended QEMU."""

    def __init__(self, monitor: Monitor, console: Console) -> None:
        self._monitor, self._console = monitor, console
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="panic watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        mark = 0
        while not self._stopped.wait(_INTERVAL):
            lines, mark = self._console.whole_lines(mark)
            if any(sign_in(line) is Trouble.PANIC for line in lines):
                break
        try:
            self._end_when_stuck()
        except GuestError:  # QEMU has ended, as it should, or is being ended
            return

    def _end_when_stuck(self) -> None:
        looks: list[set[int]] = []
        printed = 0
        while not self._stopped.wait(_PAUSE if looks else _INTERVAL):
            length, stuck = self._console.length(), self._stuck_cpus()
            looks = [*looks[-_LOOKS + 1 :], stuck] if length == printed and stuck else []
            printed = length
            if len(looks) == _LOOKS and set.intersection(*looks):
                self._monitor.command("quit")
                return

    def _stuck_cpus(self) -> set[int]:
        """The numbers of those that are in the kernel with interrupts off; none while the guest is paused."""
        match self._monitor.command("query-status"):
            case {"running": True}:
                return cpus_without_interrupts(self._monitor.human("info registers -a"))
        return set()


def cpus_without_interrupts(registers: str) -> set[int]:
    """The numbers of the CPUs in the kernel with interrupts off, by what QEMU says to ``info registers -a``.

    One that is halted so is off line, or was stopped by the one that panics, which never is halted.
    """
    cpus = enumerate(_CPU.finditer(registers))
    return {
        number
        for number, cpu in cpus
        if cpu["ring"] == "0" and cpu["halted"] == "0" and not int(cpu["flags"], 16) & _INTERRUPTS
    }
