# SPDX-License-Identifier: GPL-2.0-only
"""How long a run will still take, if its cells take what they took before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from orchestrator.experiment.plan import Plan
from orchestrator.results.durations import Durations


class TimeLeft:
    """The time left of a run whose ``unfinished`` cells are measured in as many guests side by side as ``jobs`` says.

    Workers come and go. ``clock`` is in seconds. What is not known of one cell is not known of the run.
    """

    def __init__(
        self,
        plan: Plan,
        unfinished: set[str],
        known: Durations,
        jobs: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._boots: Sequence[Mapping[str, float | None]] = [
            {cell.id: known.of(cell.id, cell.benchmark) for cell in boot.cells if cell.id in unfinished}
            for boot in plan.boots
        ]
        self._left = set(unfinished)
        self._jobs, self._clock = jobs, clock
        self._last = clock()

    def ended(self, cell: str) -> None:
        """A cell has an outcome."""
        self._left.discard(cell)
        self._last = self._clock()

    def withdrawn(self, cell: str) -> None:
        """A cell's outcome is forgotten."""
        self._left.add(cell)

    def seconds(self) -> float | None:
        """Seconds that are left; None where that is not known, or where what goes on takes longer than before."""
        boots: list[float] = []
        for boot in self._boots:
            each = [seconds for cell, seconds in boot.items() if cell in self._left]
            known = [seconds for seconds in each if seconds is not None]
            if len(known) < len(each):
                return None
            if known:
                boots.append(sum(known))
        if not boots:
            return None
        # No boot is divided among guests.
        left = max(sum(boots) / min(self._jobs(), len(boots)), max(boots)) - (self._clock() - self._last)
        return left if left > 0 else None

    def text(self) -> str:
        """``about 40 s left``; empty where it is not known."""
        seconds = self.seconds()
        return "" if seconds is None else f"about {rounded(seconds)} left"


def rounded(seconds: float) -> str:
    """A time as one says it: seconds below two minutes, minutes below two hours, else hours."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600)} h"
