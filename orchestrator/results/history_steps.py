# SPDX-License-Identifier: GPL-2.0-only
"""The steps of a history, where a cost changed between two runs, and the differences between those runs.

- An exact count: each change is a step.
- Calls that vary on the exact clock: a change is a step if the scatter of both runs does not explain it.
- A whole system on the exact clock: a change is a step if it exceeds the resolution of its A/A boots; a program whose
  runs are counted: half its interval.
- The wall clock, and whole systems without A/A boots: a penalised fit decides, if the series is long enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import median

from orchestrator.errors import LabError
from orchestrator.plain_text import counted
from orchestrator.results.cost_history import History, HistoryPoint, Metric
from orchestrator.results.recorded_provenance import (
    UNREADABLE,
    ProvenanceDifference,
    RecordedProvenance,
    host_differences,
    provenance_differences,
    provenance_of,
)
from orchestrator.results.runs import EXPERIMENT_FILE
from orchestrator.results.step_fit import FEWEST_POINTS, SHORTEST_SEGMENT, steps_of_times
from orchestrator.results.store import Store

_OF_CALLS = "half the spread of both runs' samples, and what the cells of a run differ by without their probes"
_OF_OVERHEADS = "half of both runs' intervals"
_OF_RUNS = "the resolution of A/A boots of the same work, or half the interval of a program's runs"


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
