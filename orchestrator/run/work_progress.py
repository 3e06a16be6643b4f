# SPDX-License-Identifier: GPL-2.0-only
"""How far a guest is that works by itself: what it says on its console, and how long its kernel has run by then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.unattended import progress
from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest

_TICKS = "jiffies_64"
_TICKS_SIZE = 8
_BEFORE_WRAP = 300
"""Seconds: the kernel's count begins this long before 2**32 (INITIAL_JIFFIES in include/linux/jiffies.h)."""

_INTERVAL = 10.0
_SILENCE = 30.0
"""Seconds: of a guest that prints nothing, such as one that compiles a whole kernel for an hour."""


class WorkProgress:
    """Listens to the console of a guest at work, and reports now and then; ``seconds`` reads the guest's clock."""

    def __init__(self, report: Callable[[str], None], what: str, seconds: Callable[[], int | None]) -> None:
        self._report, self._what, self._seconds = report, what, seconds
        self._reported = time.monotonic()
        self._said = ""
        self._reached: int | None = None

    def listen(self, lines: Sequence[str]) -> None:
        """Gets the console's new lines."""
        said = [words for words in map(progress, lines) if words is not None]
        silent = time.monotonic() - self._reported
        is_due = silent > (_INTERVAL if said else _SILENCE)
        if said:
            self._said = said[-1][:200]
        elif is_due:
            self._reached = self._seconds()
        if is_due:
            self._reported = time.monotonic()
            self._report(f"{self._what}: {self.reached}")

    @property
    def reached(self) -> str:
        """How far the work had got when it was looked at last."""
        after = None if self._reached is None else f"{self._reached} seconds of the guest's time"
        return ", ".join(filter(None, (self._said, after))) or "its beginning"


def kernel_seconds(guest: Guest, kernel: Kernel) -> int | None:
    """Whole seconds that a guest's kernel has counted timer ticks, read from its memory: the guest does not notice.

    None before the kernel has its page tables, and where its count cannot be found.
    """
    address = None if kernel.code is None else kernel.code.address(_TICKS)
    rate = kernel.config.get("CONFIG_HZ", "")
    if address is None or not rate.isdecimal():
        return None
    try:
        ticks = int.from_bytes(guest.read_memory(address, _TICKS_SIZE), "little")
    except GuestError:
        return None
    seconds = (ticks - (1 << 32)) // int(rate) + _BEFORE_WRAP
    return seconds if seconds >= 0 else None
