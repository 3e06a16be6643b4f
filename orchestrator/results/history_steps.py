# SPDX-License-Identifier: GPL-2.0-only
"""The steps of a history, where a cost changed between two runs, and the differences between those runs.

- An exact count: each change is a step.
- Calls that vary on the exact clock: a change is a step if the scatter of both runs does not explain it.
- A whole system on the exact clock: a change is a step if it exceeds the resolution of its A/A boots; a program whose
  runs are counted: half its interval.
- The wall clock, and whole systems without A/A boots: a penalised fit decides, if the series is long enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist, fmean, mean, median

from orchestrator.errors import HostError, LabError
from orchestrator.plain_text import counted
from orchestrator.results.history import History, HistoryPoint, Metric
from orchestrator.results.recorded_provenance import (
    UNREADABLE,
    ProvenanceDifference,
    RecordedProvenance,
    host_differences,
    provenance_differences,
    provenance_of,
)
from orchestrator.results.runs import EXPERIMENT_FILE
from orchestrator.results.store import Store

# Where the level of a noisy series changes: a penalised fit of steps, by the library ruptures.
#
# PELT (R. Killick, P. Fearnhead, I. Eckley, "Optimal detection of changepoints with a linear computational cost", JASA
# 107, 2012) minimises the squared deviations from the segments' means plus a penalty for each step. The input is in
# units of the noise, so that the penalty has no unit:
#
# - **Noise** is estimated from differences, which a step changes in one place only: their median absolute deviation
#   (1.4826 of it is the standard deviation of normal noise) divided by the square root of 2.
# - **Outliers**, more than ``_FAR`` deviations from a running median, are replaced by it: a slow run is not a step.
# - **Autocorrelation**, such as that of a host's slow drift, makes means scatter more than independent points do, by
#   (1 + r) / (1 - r) in their variance. r comes from the medians of the differences over two points and over one (S.
#   Chakar, E. Lebarbier, C. Levy-Leduc, S. Robin, "A robust approach for estimating change-points in the mean of an
#   AR(1) process", Bernoulli 23, 2017).
# - **Drift** that an autocorrelation of neighbours does not show, such as a trend, is fitted by stairs. A step changes
#   the level at once, and more than it changes elsewhere: the means of up to ``_AROUND`` points before and after it
#   differ by ``_ABRUPT`` times what they typically (1.4826 medians) do around places that are no part of the step.
# - **The penalty** bounds false steps. Of noise alone, a step at a given place reduces the squared deviations by a
#   chi-square variable of one degree of freedom, and there are n places (Bonferroni): with the quantile 1 - ``_FALSE``
#   / n, a series without steps gets one with a probability of at most ``_FALSE``, as far as noise is normal and known.
#   docs/history.md has how often other noise gets one, and how many steps are found; of a random walk below the noise
#   7.0 % of the series get one.

FEWEST_POINTS = 12
"""Shorter series are not fitted: the noise of two segments of five is not known well enough."""
SHORTEST_SEGMENT = 5
"""Points on either side of a step. A step shows once so many points have followed."""

_OF_CALLS = "half the spread of both runs' samples, and what the cells of a run differ by without their probes"
_OF_OVERHEADS = "half of both runs' intervals"
_OF_RUNS = "the resolution of A/A boots of the same work, or half the interval of a program's runs"

_FALSE = 0.001
_FAR = 3.0
_WINDOW = 7
_NORMAL = 1.4826
_STRONGEST = 0.9
_TRIM = 2.5
_AROUND = 8
_ABRUPT = 3.5


def steps_of_times(values: Sequence[float]) -> Sequence[int]:
    """The indices of the first value after each step, in order; none in a series shorter than ``FEWEST_POINTS``.

    Raises HostError if the library is not installed.
    """
    if len(values) < FEWEST_POINTS:
        return []
    noise = noise_of(values)
    if not noise:
        return []
    # At the ends the window is shifted, not cut: two outliers would be half of a cut window.
    starts = [min(max(0, at - _WINDOW // 2), len(values) - _WINDOW) for at in range(len(values))]
    centres = [median(values[start : start + _WINDOW]) for start in starts]
    pairs = zip(values, centres, strict=True)
    cleaned = [value if abs(value - centre) <= _FAR * noise else centre for value, centre in pairs]
    width = _width(cleaned)
    changes = _changes(cleaned, width)
    if not _has_abrupt_place(changes, width):
        return []
    try:
        # Imported late: it takes half a second of CPU.
        import numpy
        from ruptures import KernelCPD
    except ImportError as error:
        hint = "install it: pip install 'probe-lab[statistics]' (up to Python 3.13); exact counts need no library"
        raise HostError("steps in a history of times need the library ruptures", hint=hint) from error
    # How many times larger autocorrelation makes the variance of a mean.
    by_one, by_two = _mean_square_difference(values, 1), _mean_square_difference(values, 2)
    correlation = min(max(by_two / by_one - 1, 0.0), _STRONGEST) if by_one else 0.0
    scale = noise * math.sqrt((1 + correlation) / (1 - correlation))
    series = numpy.array(cleaned) / scale
    penalty = NormalDist().inv_cdf(1 - _FALSE / (2 * len(values))) ** 2
    # The linear kernel's cost is the sum of squared deviations from the mean.
    fit = KernelCPD(kernel="linear", min_size=SHORTEST_SEGMENT).fit(series.reshape(-1, 1))
    return [int(place) for place in fit.predict(pen=penalty)[:-1] if _is_abrupt(changes, int(place), width)]


def noise_of(values: Sequence[float]) -> float:
    """The standard deviation of a series around its level, in its unit, without steps and outliers; 0 if constant."""
    differences = [after - before for before, after in pairwise(values)]
    if not differences:
        return 0.0
    centre = median(differences)
    deviations = [abs(difference - centre) for difference in differences]
    # With a coarse clock more than half are equal. Then use the mean, which is 0.798 standard deviations of a normal.
    deviation = _NORMAL * median(deviations) or sum(deviations) / len(deviations) / 0.798
    return deviation / math.sqrt(2)


def _mean_square_difference(values: Sequence[float], lag: int) -> float:
    """The mean over values ``lag`` places apart, without the squares due to outliers and large steps."""
    squares = [(after - before) ** 2 for before, after in zip(values, values[lag:], strict=False)]
    limit = (_TRIM * _NORMAL) ** 2 * median(squares)
    return mean(square for square in squares if square <= limit)


def _has_abrupt_place(changes: Sequence[float], width: int) -> bool:
    """Whether any place is abrupt; the fit is needed only then."""
    ordered = sorted(changes[width : len(changes) - width])
    # 2 * width - 1 changes around a place are left out. The median of those outside is least if those are the largest.
    outside = len(ordered) - 2 * width + 1
    if outside <= 0:
        return True
    least = _ABRUPT * _NORMAL * ordered[(outside - 1) // 2]
    places = range(SHORTEST_SEGMENT, len(changes) - SHORTEST_SEGMENT)
    return any(changes[place] >= least and _is_abrupt(changes, place, width) for place in places)


def _width(values: Sequence[float]) -> int:
    return max(SHORTEST_SEGMENT - 1, min(_AROUND, len(values) // 8))


def _is_abrupt(changes: Sequence[float], place: int, width: int) -> bool:
    places = range(width, len(changes) - width)
    elsewhere = [changes[other_place] for other_place in places if abs(other_place - place) >= width]
    return not elsewhere or changes[place] >= _ABRUPT * _NORMAL * median(elsewhere)


def _changes(values: Sequence[float], width: int) -> Sequence[float]:
    """By place, the difference of the means of up to ``width`` values before and after it; none at both ends."""
    count = len(values)
    before = [0.0, *(fmean(values[max(place - width, 0) : place]) for place in range(1, count + 1))]
    after = [*before[width:], *(fmean(values[place:]) for place in range(count - width + 1, count)), 0.0]
    return [0.0, *(abs(after[place] - before[place]) for place in range(1, count)), 0.0]


@dataclass(frozen=True)
class HistoryStep:
    """A change from ``old`` to ``new``, in the history's unit, between the runs of two points.

    ``old`` and ``new`` are medians of the values on either side. ``missing`` runs between the two have no number.
    """

    before: HistoryPoint
    after: HistoryPoint
    old: float
    new: float
    missing: int = 0

    @property
    def change(self) -> float:
        return self.new - self.old


@dataclass(frozen=True)
class Steps:
    """A history with its steps, oldest first, and a sentence on the method."""

    history: History
    ordered: Sequence[HistoryStep]
    how: str


def steps_of(history: History) -> Steps:
    """The steps of a history. Raises HostError if the fit needs a missing library."""
    numbers = history.numbers
    if history.is_exact:
        places = [at + 1 for at, ((_, before), (_, after)) in enumerate(pairwise(numbers)) if before != after]
        return Steps(history, _steps(history, places), "The count is exact: each change is a step.")
    if history.newest.clock == "instructions" and any(history.resolution(point) for point, _ in numbers):
        of = _OF_RUNS
        if history.newest.is_of_calls:
            of = _OF_CALLS if history.quantity == "value" else _OF_OVERHEADS
        how = f"A change is a step if it exceeds {of}."
        return Steps(history, _steps(history, list(_beyond_resolution(history))), how)
    if len(numbers) < FEWEST_POINTS:
        runs = counted(len(numbers), "run")
        how = f"{runs} with a number: finding steps in noise needs {FEWEST_POINTS}."
        return Steps(history, [], how)
    how = f"Steps are fitted, with at least {SHORTEST_SEGMENT} runs on either side: a newer step does not show yet."
    return Steps(history, _steps(history, steps_of_times([value for _, value in numbers])), how)


def _steps(history: History, places: Sequence[int]) -> Sequence[HistoryStep]:
    """The steps at these indices of the points with a number."""
    numbers = history.numbers
    ends = [0, *places, len(numbers)]
    levels = [median([value for _, value in numbers[start:end]]) for start, end in pairwise(ends) if places]
    index = {point.run: at for at, point in enumerate(history.points)}
    steps = []
    for place, (old, new) in zip(places, pairwise(levels), strict=True):
        before, after = numbers[place - 1][0], numbers[place][0]
        steps.append(HistoryStep(before, after, old, new, index[after.run] - index[before.run] - 1))
    return steps


def _beyond_resolution(history: History) -> Iterator[int]:
    """The indices of numbers that differ from the median since the last step by more than the runs' resolutions.

    The resolution of A/A boots is that of a difference, half the scatter of calls that of a number: both runs' add up.
    A run without A/A boots has no resolution and makes no step.
    """
    numbers, start = history.numbers, 0
    for at in range(1, len(numbers)):
        since = numbers[start:at]
        widths = [width for point, _ in since if (width := history.resolution(point)) is not None]
        width_here = history.resolution(numbers[at][0])
        if width_here is None or not widths:
            continue
        scatter = width_here + max(widths) if history.newest.is_of_calls else max(width_here, *widths)
        if abs(numbers[at][1] - median([value for _, value in since])) > scatter:
            yield at
            start = at


_KEPT = 16


class RunProvenances:
    """The provenance of a store's runs, with a cache; ``of`` raises as ``provenance_of`` does.

    The provenance of 10 000 cells has 3 MB, and the metrics of an experiment often have steps at the same runs.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.of = lru_cache(_KEPT)(lambda run: provenance_of(store.entry(run).directory, store.provenance(run)))


def causes(provenances: RunProvenances, step: HistoryStep, metric: Metric) -> Sequence[ProvenanceDifference]:
    """The differences between the runs of a step, with the host's for the wall clock, or a note on unreadable ones.

    Other kernels and other cells' modules are left out, since they did not change this cell's cost.
    """
    before, after = step.before, step.after
    changed = [ProvenanceDifference("experiment", detail=(EXPERIMENT_FILE,))] if before.digest != after.digest else []
    try:
        first, second = (_provenance(provenances, point, metric.cell) for point in (before, after))
    except LabError as error:
        return [*changed, ProvenanceDifference(UNREADABLE, detail=(f"{error.where}: {error.what}",))]
    host = host_differences(first, second) if after.clock == "wall" else []
    return [*changed, *provenance_differences(first, second), *host]


def _provenance(provenances: RunProvenances, point: HistoryPoint, cell: str) -> RecordedProvenance:
    provenance = provenances.of(point.run)
    query = "SELECT json_extract(record, '$.kernel') AS kernel FROM cells WHERE run = ? AND id = ?"
    kernel = provenances.store.select(query, point.run, cell)[0]["kernel"]
    boots = []
    for boot in provenance.boots:
        if boot.kernel.name == kernel:
            # Several modules of a cell are named CELL: MODULE.
            modules = {name: module for name, module in boot.modules.items() if f"{name}: ".startswith(f"{cell}: ")}
            inputs = {name: source for name, source in boot.inputs.items() if name == cell}
            boots.append(boot.model_copy(update={"modules": modules, "inputs": inputs}))
    # If no boot has the record's kernel, another version has written the file.
    return provenance.model_copy(update={"boots": tuple(boots)}) if boots else provenance
