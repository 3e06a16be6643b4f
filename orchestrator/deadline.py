# SPDX-License-Identifier: GPL-2.0-only
"""Time limits that do not count the time for which the host gave us no processor."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping

_READ_MAX = 1 << 16
"""Bytes. The kernel returns at most a page of whole lines at once, the numbers of some 600 children."""


def processor_waits() -> dict[int, float]:
    """Seconds for which each thread of this process and its descendants was runnable without a processor, by number.

    The kernel's scheduler counts them over a thread's whole life (proc_pid_schedstat(5)). Other processes, a control
    group's quota and a lower priority make them grow; sleeping does not. Empty without CONFIG_SCHED_INFO, which
    Debian's kernels have. A process whose sibling has just ended may be missing (proc_pid_children(5)).
    """
    waits: dict[int, float] = {}
    processes = [os.getpid()]
    while processes:
        with contextlib.suppress(OSError):  # the process has ended
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


class _Clock:
    """The host's monotonic seconds, without those that do not count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holds, self._since, self._before = 0, 0.0, 0.0

    def now(self) -> float:
        with self._lock:
            return (self._since if self._holds else time.monotonic()) - self._before

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        with self._lock:
            self._since = self._since if self._holds else time.monotonic()
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1
                self._before += 0.0 if self._holds else time.monotonic() - self._since


_clock = _Clock()


def uncounted() -> contextlib.AbstractContextManager[None]:
    """A context in which no deadline of this process comes nearer: a person is in a debugger."""
    return _clock.stopped()


class RecentWaits:
    """Processor waits, read once for all threads that wait at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self._waits = -math.inf, dict[int, float]()

    def since(self, earliest: float) -> Mapping[int, float]:
        """``processor_waits()`` as they were at ``earliest`` (seconds of ``_clock``) or later."""
        with self._lock:
            if self._read < earliest:
                self._read, self._waits = _clock.now(), processor_waits()
            return self._waits


_LOOK_INTERVAL = 0.1
"""Seconds between two readings of the waits, each of which costs 0.1 ms of processor time per guest. The wait of a
process between the last reading and its own end is lost: with 1 s and an eighth of a processor, 13.4 s of the 13.9
that forty compilers took after each other counted, with 0.1 s 7.7 of 18.6."""

_LOOKS = 8  # the fewest readings within a short limit

_LONGEST = 60  # a wait ends in any case after so many times its limit

_waits = RecentWaits()


class Deadline:
    """A limit of ``limit`` seconds on a wait, not counting time without a processor.

    It is the host's time, less the time for which a thread of this process or of a process started by it was runnable
    without a processor: a guest that gets an eighth of a processor has eight times as long. For one that sleeps,
    spins on a processor of its own, or was stopped, nothing is subtracted. Threads may share a deadline.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._looked = _clock.now()
        self._end, self._last = self._looked + limit, self._looked + _LONGEST * limit
        self._interval = min(_LOOK_INTERVAL, limit / _LOOKS)
        self._looking = threading.Lock()
        # Read now: the next reading may come late, since the commands of a cell have limits of their own.
        self._waits = _waits.since(self._looked - self._interval)

    def left(self) -> float:
        with self._looking:  # two readings at once would add the same time twice
            now = _clock.now()
            if now - self._looked >= self._interval or now >= self._end:
                # Before the end a slightly older reading will do; the next one makes up for it.
                before, self._waits = self._waits, _waits.since(now if now >= self._end else now - self._interval)
                self._looked = now
                # The longest of them: threads that wait at the same time do not wait one after the other.
                waited = max((wait - before.get(thread, 0.0) for thread, wait in self._waits.items()), default=0.0)
                # Limited to our own wait: a thread that the last reading lacked brings the waits of its whole life.
                self._end = min(self._end + max(0.0, waited), now + self.limit)
            return max(0.0, min(self._end, self._last) - now)

    def pause(self) -> float:
        """Seconds to wait for something at most before ``left`` is called again."""
        left = self.left()
        # A reading may extend the end, so the steps do not shrink with what is left.
        return min(max(left, self._interval / _LOOKS), self._interval) if left else 0.0
