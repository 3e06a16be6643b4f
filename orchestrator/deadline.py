# SPDX-License-Identifier: GPL-2.0-only
"""The end of a wait: how long someone who is waited for may work, whatever else the host does."""

from __future__ import annotations

import threading
import time

from orchestrator.processor_wait import RecentWaits

_LOOK_INTERVAL = 0.1
"""Seconds between two looks at what was waited for, each 0.1 ms of a processor's time for each guest. What a process
has waited for between the last look and its own end is not seen: with 1 s and an eighth of a processor, 13.4 s of the
13.9 that forty compilers took after each other counted, with 0.1 s 7.7 of 18.6."""

_LOOKS = 8
"""A short limit has as many looks."""

_LONGEST = 60
"""Limits after which a wait ends in any case: sixty times as slow is not slow any more."""

_waits = RecentWaits()


class Deadline:
    """The end of a wait: ``limit`` seconds in which whoever is waited for could work.

    That is the host's time, without that in which a thread of ours, or of a process that we started, was ready to run
    and got no processor. So a host that is busy, or a quota, does not make a guest hang: one that gets an eighth of a
    processor has eight times as long. For a guest that sleeps for ever, or spins on a processor of its own, it is the
    host's time; so it is for a stopped process, which is not ready to run. Threads may share one.
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
        """Seconds left if nobody has to wait for a processor; 0 when it is over."""
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
