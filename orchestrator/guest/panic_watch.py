# SPDX-License-Identifier: GPL-2.0-only
"""Watching for a panic without a restart, and for too much output. QEMU is then ended, which callers notice.

A panic usually ends QEMU (``panic=-1`` restarts at once, and QEMU has -no-reboot). It does not if the guest has set
``kernel.panic`` to seconds, or if the panic itself fails: Linux 6.1 on i686 hangs in it after a double fault. Without
the watch only a command's time limit would end that.

Programs can print what looks like a panic, so QEMU's registers must also show a CPU in the kernel with interrupts
off. That excludes guests that have set ``kernel.panic`` to 0, as panic() then enables interrupts.

The limit of file sizes (RLIMIT_FSIZE) does not bind QEMU: its threads block SIGXFSZ, and QEMU 7.2 continues if a
write of the console's log fails. So the watch checks the files' sizes.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import GuestError
from orchestrator.guest.console import Console
from orchestrator.guest.kernel_reports import Trouble, sign_in
from orchestrator.guest.monitor import Monitor
from orchestrator.process import Spawned

CONSOLE_MAX = 256 << 20
"""Bytes of the console's log, or of QEMU's messages; a night of a kernel's own tests prints a few megabytes."""


_WATCH_INTERVAL = 0.2
"""Seconds between checks of the files, in which an emulated serial port prints a megabyte."""


_LOOKS = 5


_PAUSE = 0.1
"""Consecutive checks of the registers without a new console byte, and the seconds between them."""


# x86_cpu_dump_state() of QEMU 7.2 and 10.0, target/i386/cpu-dump.c.
_CPU = re.compile(
    r"\b[ER]FL=(?P<flags>[0-9a-f]{8}) \[[^\]]{1,10}\] CPL=(?P<ring>\d) II=\d A20=\d SMM=\d HLT=(?P<halted>\d)"
)


_INTERRUPTS = 0x200


class QemuWatch:
    """A thread that watches a QEMU until stopped, or until it has ended QEMU.

    ``exceeded`` is the file with more than ``largest`` bytes; panics are looked for once there is a ``monitor``. With
    ``before_end``, QEMU waits when the guest resets itself; it is ended after that call, as after a panic.
    """

    def __init__(self, process: Spawned, console: Console, messages: Path, largest: int) -> None:
        self.largest = largest
        self.exceeded: Path | None = None
        self.monitor: Monitor | None = None
        self.before_end: Callable[[], None] | None = None
        self._process, self._console, self._files = process, console, (console.path, messages)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="QEMU's watch", daemon=True)
        self._thread.start()

    def stop(self, end: Callable[[], None]) -> None:
        """Stop watching; ``end`` ends QEMU, which the thread may be waiting for."""
        self._stopped.set()
        end()
        self._thread.join()

    def _watch(self) -> None:
        mark = printed = 0
        has_panicked = False
        looks: list[set[int]] = []
        while not self._stopped.wait(_PAUSE if looks else _WATCH_INTERVAL):
            for file in self._files:
                with contextlib.suppress(OSError):  # not there yet, or the file system is gone
                    if file.stat().st_size > self.largest:
                        self.exceeded = file
                        self._process.kill()
                        return
            if self.before_end is not None and self._has_reset():
                self._end()
                return
            if not has_panicked:
                lines, mark = self._console.whole_lines(mark)
                has_panicked = any(sign_in(line) is Trouble.PANIC for line in lines)
            elif self.monitor is not None:
                try:
                    length, stuck = self._console.length(), _stuck_cpus(self.monitor)
                    looks = [*looks[-_LOOKS + 1 :], stuck] if length == printed and stuck else []
                    printed = length
                    if len(looks) == _LOOKS and set.intersection(*looks):
                        self._end()
                        return
                except GuestError:  # QEMU has ended or is being ended, as expected
                    looks, self.monitor = [], None

    def _has_reset(self) -> bool:
        try:
            return self.monitor is not None and self.monitor.status() == "shutdown"
        except GuestError:  # QEMU has ended or is being ended
            self.before_end = None
            return False

    def _end(self) -> None:
        assert self.monitor is not None
        if self.before_end is not None:
            self.before_end()
        with contextlib.suppress(GuestError):
            self.monitor.command("quit")


def _stuck_cpus(monitor: Monitor) -> set[int]:
    """The CPUs in the kernel with interrupts off; empty while the guest is paused."""
    return cpus_without_interrupts(monitor.human("info registers -a")) if monitor.status() == "running" else set()


def cpus_without_interrupts(registers: str) -> set[int]:
    """The CPUs in the kernel with interrupts off, from the output of ``info registers -a``.

    A halted CPU in this state is offline, or was stopped by the panicking CPU, which never halts.
    """
    cpus = enumerate(_CPU.finditer(registers))
    return {
        number
        for number, cpu in cpus
        if cpu["ring"] == "0" and cpu["halted"] == "0" and not int(cpu["flags"], 16) & _INTERRUPTS
    }
