# SPDX-License-Identifier: GPL-2.0-only
"""The steps of a history: between which runs a cost changed.

- An exact count: each change is a step.
- A whole system on the exact clock: a change is a step where it exceeds what its A/A boots resolve.
- The wall clock, and whole systems without A/A boots: a penalised fit decides, of a series that is long enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.counted import counted
from orchestrator.results.history import History, Point
from orchestrator.results.statistics import median
from orchestrator.results.step_fit import FEWEST_POINTS, SHORTEST_SEGMENT, steps_of_times


@dataclass(frozen=True)
class Step:
    """A change from ``old`` to ``new``, in the history's unit, between the runs of two points.

    Of counts these are the points' own; of others the medians on either side. ``missing`` runs between the two have no
    number.
    """

    before: Point
    after: Point
    old: float
    new: float
    missing: int = 0

    @property
    def change(self) -> float:
        """What it costs more."""
        return self.new - self.old


@dataclass(frozen=True)
class Steps:
    """The steps that were found, oldest first, and a sentence on how."""

    found: Sequence[Step]
    how: str


def steps_of(history: History) -> Steps:
    """The steps of a history. Raises HostError where the fit's library is needed and not there."""
    numbers = history.numbers
    if history.is_exact:
        places = [at + 1 for at, ((_, one), (_, other)) in enumerate(pairwise(numbers)) if one != other]
        return Steps(_steps(history, places), "The count is exact: each change is a step.")
    if history.newest.clock == "instructions" and any(point.resolution for point, _ in numbers):
        how = "A change is a step where it exceeds what A/A boots of the same work resolve."
        return Steps(_steps(history, list(_beyond_resolution(numbers))), how)
    if len(numbers) < FEWEST_POINTS:
        runs = counted(len(numbers), "run")
        how = f"{runs} with a number: of fewer than {FEWEST_POINTS}, no step can be distinguished from noise."
        return Steps([], how)
    how = f"Steps are fitted, each with {SHORTEST_SEGMENT} runs or more on either side: a newer one does not show yet."
    return Steps(_steps(history, steps_of_times([value for _, value in numbers])), how)


def _steps(history: History, places: Sequence[int]) -> Sequence[Step]:
    """The steps at these places of the points with a number, of which each segment has a level."""
    numbers = history.numbers
    ends = [0, *places, len(numbers)]
    levels = [median([value for _, value in numbers[start:end]]) for start, end in pairwise(ends)] if places else []
    index = {point.run: at for at, point in enumerate(history.points)}
    found = []
    for place, (old, new) in zip(places, pairwise(levels), strict=True):
        before, after = numbers[place - 1][0], numbers[place][0]
        found.append(Step(before, after, old, new, index[after.run] - index[before.run] - 1))
    return found


def _beyond_resolution(numbers: Sequence[tuple[Point, float]]) -> Iterator[int]:
    """Where a number differs from the median since the last step by more than either run resolves.

    A run without A/A boots has no resolution and makes no step.
    """
    start = 0
    for at in range(1, len(numbers)):
        since = numbers[start:at]
        widths = [point.resolution for point, _ in since if point.resolution is not None]
        own = numbers[at][0].resolution
        if own is not None and widths and abs(numbers[at][1] - median([one for _, one in since])) > max(own, *widths):
            yield at
            start = at
