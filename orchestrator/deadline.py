# SPDX-License-Identifier: GPL-2.0-only
"""The end of a wait, less the time that the host's processors were not to be had."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Mapping

_READ_MAX = 1 << 16
"""Bytes; the kernel gives whole lines and numbers, a page of them at once: the numbers of some 600 children."""


def processor_waits() -> dict[int, float]:
    """Seconds that each thread of ours and of all our descendants was ready to run and got no processor, by number.

    They are of the thread's whole life, as the kernel's scheduler counts them (proc_pid_schedstat(5)): other processes
    on the host make them grow, and so do a control group's quota and a lower priority; sleeping does not. Empty where
    the kernel does not count them (without CONFIG_SCHED_INFO, which Debian's kernels have). A process may be missing
    that has lost a sibling meanwhile (proc_pid_children(5)).
    """
    waits: dict[int, float] = {}
    processes = [os.getpid()]
    while processes:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            tasks = f"/proc/{processes.pop()}/task"
            for thread in os.listdir(tasks):  # noqa: PTH208  # with pathlib all of this takes 2.6 times as long
                with contextlib.suppress(OSError):
                    waits[int(thread)] = int(_content(f"{tasks}/{thread}/schedstat").split()[1]) / 1e9
                    processes += map(int, _content(f"{tasks}/{thread}/children").split())
    return waits


def _content(file: str) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _READ_MAX)
    finally:
        os.close(descriptor)


class RecentWaits:
    """Processor waits for all threads that ask, so that many who wait at the same time read them once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self._waits = -math.inf, dict[int, float]()

    def since(self, earliest: float) -> Mapping[int, float]:
        """``processor_waits()`` as they were at ``earliest`` (the host's monotonic seconds) or later."""
        with self._lock:
            if self._read < earliest:
                self._read, self._waits = time.monotonic(), processor_waits()
            return self._waits


_LOOK_INTERVAL = 0.1
"""Seconds between two looks at what was waited for, each 0.1 ms of a processor's time for each guest. What a process
has waited for between the last look and its own end is not seen: with 1 s and an eighth of a processor, 13.4 s of the
13.9 that forty compilers took after each other counted, with 0.1 s 7.7 of 18.6."""

_LOOKS = 8  # A short limit has as many looks

_LONGEST = 60  # limits after which a wait ends in any case: sixty times as slow is not slow any more

_waits = RecentWaits()


class Deadline:
    """The end of a wait: ``limit`` seconds in which whoever is waited for could work.

    That is the host's time, without that in which a thread of ours, or of a process that we started, was ready to run
    and got no processor: a guest that gets an eighth of a processor has eight times as long. For one that sleeps for
    ever, spins on a processor of its own, or was stopped, it is the host's time. Threads may share one.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._looked = time.monotonic()
        self._end, self._last = self._looked + limit, self._looked + _LONGEST * limit
        self._interval = min(_LOOK_INTERVAL, limit / _LOOKS)
        self._looking = threading.Lock()
        # Also where nobody asks for long what is left: a cell has commands with limits of their own.
        self._waits = _waits.since(self._looked - self._interval)

    def left(self) -> float:
        with self._looking:  # two looks at once would add the same time twice
            now = time.monotonic()
            if now - self._looked >= self._interval or now >= self._end:
                self._look(now)
            return max(0.0, min(self._end, self._last) - now)

    def pause(self) -> float:
        """Seconds to wait for something at most before ``left`` is asked again."""
        left = self.left()
        # Of what is left a part may come back with each look: not in ever smaller steps.
        return min(max(left, self._interval / _LOOKS), self._interval) if left else 0.0

    def _look(self, now: float) -> None:
        # What has not ended yet may take a look that is not quite new; the next one makes up for it.
        before, self._waits = self._waits, _waits.since(now if now >= self._end else now - self._interval)
        self._looked = now
        # The longest of them: threads that wait at the same time do not wait one after the other.
        waited = max((wait - before.get(thread, 0.0) for thread, wait in self._waits.items()), default=0.0)
        # Nobody has waited for longer than we have: a thread that was missing in the last look brings all its life.
        self._end = min(self._end + max(0.0, waited), now + self.limit)
