# SPDX-License-Identifier: GPL-2.0-only
"""The progress of an unattended guest: what it prints on its console, and its kernel's uptime."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.unattended_initramfs import progress
from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest

_TICKS = "jiffies_64"
_BEFORE_WRAP = 300
"""Seconds: the kernel's count begins this long before 2**32 (INITIAL_JIFFIES in include/linux/jiffies.h)."""

_INTERVAL = 10.0
_SILENCE = 30.0
"""Seconds without output, such as from a guest that compiles a whole kernel for an hour."""


class WorkProgress:
    """Listens to a working guest's console and reports periodically; ``seconds`` reads the guest's clock."""

    def __init__(self, report: Callable[[str], None], what: str, seconds: Callable[[], int | None]) -> None:
        self._report, self._what, self._seconds = report, what, seconds
        self._reported = time.monotonic()
        self._said = ""
        self._reached: int | None = None

    def listen(self, lines: Sequence[str]) -> None:
        reported = [words for words in map(progress, lines) if words is not None]
        silent = time.monotonic() - self._reported
        is_due = silent > (_INTERVAL if reported else _SILENCE)
        if reported:
            self._said = reported[-1][:200]
        elif is_due:
            self._reached = self._seconds()
        if is_due:
            self._reported = time.monotonic()
            self._report(f"{self._what}: {self.reached}")

    @property
    def reached(self) -> str:
        after = None if self._reached is None else f"{self._reached} seconds of the guest's time"
        return ", ".join(filter(None, (self._said, after))) or "its beginning"


def kernel_seconds(guest: Guest, kernel: Kernel) -> int | None:
    """Whole seconds of timer ticks that a guest's kernel has counted, read from memory without its noticing.

    None before the kernel has its page tables, or if the count cannot be found.
    """
    address = None if kernel.code is None else kernel.code.address(_TICKS)
    rate = kernel.config.get("CONFIG_HZ", "")
    if address is None or not rate.isdecimal():
        return None
    try:
        ticks = int.from_bytes(guest.read_memory(address, 8), "little")
    except GuestError:
        return None
    seconds = (ticks - (1 << 32)) // int(rate) + _BEFORE_WRAP
    return seconds if seconds >= 0 else None
