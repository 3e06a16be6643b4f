# SPDX-License-Identifier: GPL-2.0-only
"""Compare two runs cell by cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from orchestrator.comparison.verdicts import (
    Difference,
    Figure,
    between_cells,
    difference_to_zero,
    exact_difference,
    is_exact,
    overhead_difference,
    resolution,
    scattered_differences,
    shown_interval,
    varying_difference,
    work_difference,
)
from orchestrator.errors import LabError
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.profile.stored.profile_difference import ProfileDifference, difference
from orchestrator.profile.stored.profile_files import load_pair
from orchestrator.program import command
from orchestrator.results import parameters
from orchestrator.results.budgets import Budget, Budgets, CellBudget
from orchestrator.results.cell_filters import only
from orchestrator.results.contract import MOST_COUNTED_RUNS, CellRecord
from orchestrator.results.frames import frame
from orchestrator.results.recorded_provenance import (
    ProvenanceDifference,
    RecordedProvenance,
    host_differences,
    provenance_differences,
)
from orchestrator.results.runs import EXPERIMENT_FILE, Run

if TYPE_CHECKING:
    from pandas import DataFrame

_WORK = (
    parameters.CALL,
    parameters.ARGUMENTS,
    parameters.WORKLOAD,
    parameters.SCOPE,
    parameters.PACKETS,
    parameters.COMMAND,
    parameters.IMAGE,
    parameters.KERNEL_MODULES,
    parameters.ROUNDS,
)
"""Parameters that define a cell's work; earlier versions recorded fewer of them."""


def why_not_compared(before: CellRecord, after: CellRecord) -> str | None:
    """Why two numbers cannot be compared, such as different units or work; None if they can."""
    # Benchmarks that make the same call are equal: ``gtodbench``, and ``syscall`` of gettimeofday.
    are_calls = parameters.CALL in before.parameters and parameters.CALL in after.parameters
    facts: dict[str, tuple[object, object]] = {
        "clocks": (before.clock, after.clock),
        "metrics": (before.metric, after.metric),
        "units": (before.unit, after.unit),
        "benchmarks": (None, None) if are_calls else (before.benchmark, after.benchmark),
        **{name: (before.parameters.get(name), after.parameters.get(name)) for name in _WORK},
    }
    for what, (first, second) in facts.items():
        if first != second and first is not None and second is not None:
            return f"different {what}: {first} and {second}"
    evidence, other_evidence = before.work, after.work
    if (
        evidence is not None
        and other_evidence is not None
        and (evidence.done, evidence.digest) != (other_evidence.done, other_evidence.digest)
    ):
        results = [f"{work.done} of digest {work.digest[:16] or 'none'}" for work in (evidence, other_evidence)]
        return f"different work: each run made {results[0]}, and {results[1]}"
    return None


def record_notes(before: CellRecord, after: CellRecord) -> Iterator[str]:
    """Sentences on differences between two cells' records that do not prevent a comparison."""
    yield from _different("calls", calls_of(before), calls_of(after))
    for what, fact in (("entries into the kernel", parameters.ENTRY), ("results of the calls", parameters.OUTCOME)):
        yield from _different(what, fact.of(before) or "", fact.of(after) or "")


def notes(before: tuple[CellRecord, CellProfile], after: tuple[CellRecord, CellProfile]) -> Iterator[str]:
    """``record_notes``, and a difference of architectures."""
    yield from _different("architectures", before[1].arch, after[1].arch)
    yield from record_notes(before[0], after[0])


def calls_of(record: CellRecord) -> str:
    """A cell's calls: ``gettimeofday({"buffer": 16}, 0)``, or a user's file."""
    call = parameters.CALL.of(record)
    if call is not None:
        return f"{call}({(parameters.ARGUMENTS.of(record) or '').removeprefix('[').removesuffix(']')})"
    return parameters.WORKLOAD.of(record) or record.benchmark


def _different(what: str, first: str, second: str) -> Iterator[str]:
    if first != second and first and second:
        yield f"different {what}: {first} and {second}"


Change = Literal["failed", "missing", "regressed", "improved", "undecided", "fixed", "new", "unchanged"]
CHANGES: tuple[Change, ...] = get_args(Change)
"""In the order of reporting; regressed and improved cells are mixed, the largest difference first."""

UNBUDGETED = CellBudget(value=Budget())
"""For cells without a budget: an exact value may not grow, and the interval of a difference may not be above 0."""
_UNBUDGETED_VARYING = CellBudget(value=UNBUDGETED.value, overhead=UNBUDGETED.value)
"""For calls that vary, whose overhead is known better than their value."""


@dataclass(frozen=True)
class CellPair:
    """The two cells to compare; None for a missing one."""

    before: CellRecord | None
    after: CellRecord | None

    @property
    def title(self) -> str:
        ids = dict.fromkeys(cell.id for cell in (self.before, self.after) if cell is not None)
        return " -> ".join(ids)

    @property
    def first(self) -> CellRecord:
        """The cell after, else the cell before."""
        cell = self.after if self.after is not None else self.before
        assert cell is not None
        return cell


@dataclass(frozen=True)
class BudgetedFigure:
    """A cell's ``value`` or ``overhead`` with its budget; ``is_own`` if the experiment has a budget for the cell.

    ``difference`` is to the cell before; to 0 for a budget that does not depend on it.
    """

    figure: Figure
    difference: Difference
    budget: Budget
    is_own: bool

    @property
    def is_exceeded(self) -> bool:
        """Whether the figure decidedly exceeds its budget."""
        return self.difference.exceeds(self.budget.increase(self.difference.before))

    @property
    def figures(self) -> str:
        """The figure's increase; the figure itself if the budget does not depend on the figure before."""
        sign = "+" if self.budget.most is None else ""
        return f"{self.figure} {self.difference.value:{sign}.15g}"


@dataclass(frozen=True)
class CellChange:
    """The change of a pair of cells. ``reason`` is a sentence or empty.

    ``value`` and ``overhead`` are None if a cell has no number. ``budgeted`` are the figures with a budget.
    """

    pair: CellPair
    change: Change
    reason: str = ""
    value: Difference | None = None
    overhead: Difference | None = None
    budgeted: tuple[BudgetedFigure, ...] = ()

    @property
    def has_no_number(self) -> bool:
        """Whether neither cell has a number, unless the cell failed only now."""
        no_number = all(cell is None or cell.value is None for cell in (self.pair.before, self.pair.after))
        return no_number and self.change == "unchanged"

    @property
    def failed_in_both(self) -> bool:
        return all(cell is not None and cell.status == "failed" for cell in (self.pair.before, self.pair.after))

    @property
    def decided(self) -> Difference | None:
        """The difference by which the cell regressed or improved, of its value, else its overhead; None if neither.

        A difference without a verdict is not one.
        """
        if self.change not in ("regressed", "improved"):
            return None
        interval = None if self.value is None or self.value.undecided else self.value.interval
        return self.value if interval is not None and not interval[0] <= 0 <= interval[1] else self.overhead

    @property
    def is_lost(self) -> bool:
        """Whether the cell failed, or had a number that is missing."""
        before = self.pair.before
        return self.change == "failed" or (self.change == "missing" and before is not None and before.value is not None)

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Sentences on figures that exceed their budgets; a lost cell exceeds any budget."""
        if self.is_lost:
            return (f"it is {self.change}" if self.change == "missing" else f"it {self.change}",)
        unit = self.pair.first.unit
        return tuple(
            f"{figure.figures} {unit}, allowed {figure.budget}" for figure in self.budgeted if figure.is_exceeded
        )

    @property
    def unproved(self) -> str:
        """Why nobody can tell whether the cell has grown: it failed before; empty otherwise.

        A limit of the cell's own judges it without a number before.
        """
        if self.failed_in_both:
            return "it failed in both"
        has_limit = any(figure.is_own and figure.budget.most is not None for figure in self.budgeted)
        return "it has no number before" if self.change == "fixed" and not has_limit else ""


@dataclass(frozen=True)
class Comparison:
    """All pairs of cells by change, the largest relative difference first; ``not_compared`` with the reasons."""

    cells: Sequence[CellChange]
    not_compared: Sequence[tuple[CellPair, str]] = ()

    @property
    def counts(self) -> Mapping[Change, int]:
        """The number of cells by change, in the order of ``CHANGES``, without zeros."""
        counts = Counter(cell.change for cell in self.cells)
        return {change: counts[change] for change in CHANGES if counts[change]}

    @property
    def changed(self) -> Sequence[CellChange]:
        return [cell for cell in self.cells if cell.change != "unchanged" or cell.exceeded]

    @property
    def unchanged(self) -> Sequence[CellChange]:
        return [cell for cell in self.cells if cell.change == "unchanged" and not cell.exceeded]

    @property
    def exceeded(self) -> Sequence[CellChange]:
        return [cell for cell in self.cells if cell.exceeded]

    @property
    def unproved(self) -> Sequence[CellChange]:
        return [cell for cell in self.cells if cell.unproved]

    @property
    def is_empty(self) -> bool:
        """Whether no pair of cells could be compared: a cell is missing, or both have no number."""
        return all(cell.pair.before is None or cell.pair.after is None or cell.has_no_number for cell in self.cells)


def pairs_by_id(before: Sequence[CellRecord], after: Sequence[CellRecord]) -> Sequence[CellPair]:
    """Pair the cells of two runs by their ids, in the order of the second run."""
    first, second = ({cell.id: cell for cell in cells} for cells in (before, after))
    return [CellPair(first.get(id_), second.get(id_)) for id_ in {**second, **first}]


def pairs_by_kernel(cells: Sequence[CellRecord], before: str, after: str) -> Sequence[CellPair]:
    """Pair the cells of one run that differ in their kernel only."""
    first, second = (
        {tuple(part for part in cell.id.split("/") if part != name): cell for cell in cells if cell.kernel == name}
        for name in (before, after)
    )
    return [CellPair(first.get(key), second.get(key)) for key in {**second, **first}]


def compare(
    pairs: Sequence[CellPair],
    budgets: Budgets,
    before: Sequence[CellRecord],
    after: Sequence[CellRecord],
) -> Comparison:
    """Compare pairs of cells; ``before`` and ``after`` are all cells of their runs.

    Raises HostError if times scatter and scipy is not installed.
    """
    runs = ({cell.id: cell for cell in before}, {cell.id: cell for cell in after})
    done: list[CellChange] = []
    refused: list[tuple[CellPair, str]] = []
    scattered: list[tuple[CellPair, CellRecord, CellRecord]] = []
    for pair in pairs:
        cell, other_cell = pair.before, pair.after
        if cell is None or other_cell is None or cell.value is None or other_cell.value is None:
            done.append(_without_number(pair, budgets))
        elif (why := why_not_compared(cell, other_cell)) is not None:
            refused.append((pair, why))
        elif is_exact(cell) and is_exact(other_cell):
            done.append(_judged(pair, (cell, other_cell), exact_difference(cell.value, other_cell.value), budgets))
        elif cell.work is not None and other_cell.work is not None:
            noise = [resolution(cell, run) for cell, run in zip((cell, other_cell), runs, strict=True)]
            done.append(_judged(pair, (cell, other_cell), work_difference(cell, other_cell, noise), budgets))
        elif cell.calls_vary or other_cell.calls_vary:
            between = [between_cells(cell, run) for cell, run in zip((cell, other_cell), runs, strict=True)]
            done.append(_judged(pair, (cell, other_cell), varying_difference(cell, other_cell, between), budgets))
        else:
            scattered.append((pair, cell, other_cell))
    differences = scattered_differences([(cell, other_cell) for _, cell, other_cell in scattered])
    for (pair, cell, other_cell), judged in zip(scattered, differences, strict=True):
        done.append(_judged(pair, (cell, other_cell), judged, budgets))
    return Comparison(sorted(done, key=_order), refused)


def _without_number(pair: CellPair, budgets: Budgets) -> CellChange:
    """The change of a pair without two numbers; limits apply to the number of the cell after."""
    before, after = pair.before, pair.after
    budgeted = () if after is None else _budgeted(after, budgets.of_cell(after), {"value": None, "overhead": None})
    was, now = (None if cell is None else cell.status for cell in (before, after))
    had = "" if before is None else f"it was {before.status}: {before.first_line}"
    has = "" if after is None else f"{after.status}: {after.first_line}"
    if now == "failed" and was != "failed":
        return CellChange(pair, "failed", has)
    if was is None:
        return CellChange(pair, "new", "" if now == "ok" else has, budgeted=budgeted)
    if now is None:
        return CellChange(pair, "missing", "" if was == "ok" else had)
    if now == "ok":
        return CellChange(pair, "fixed" if was == "failed" else "new", had, budgeted=budgeted)
    if was == "ok":
        return CellChange(pair, "missing", has)
    return CellChange(pair, "unchanged", f"no number in both: {has or had}")


def _budgeted(
    after: CellRecord, own_budget: CellBudget | None, differences: Mapping[Figure, Difference | None]
) -> tuple[BudgetedFigure, ...]:
    """A cell's figures with their budgets: an increase judges the difference, any other the cell after alone."""
    of_cell = own_budget or (_UNBUDGETED_VARYING if after.calls_vary else UNBUDGETED)
    budgets: Mapping[Figure, Budget | None] = {"value": of_cell.value, "overhead": of_cell.overhead}
    budgeted = []
    for figure, budget in budgets.items():
        if budget is None:
            continue
        difference = differences[figure] if budget.most is None else difference_to_zero(after, figure)
        if difference is not None:
            budgeted.append(BudgetedFigure(figure, difference, budget, own_budget is not None))
    return tuple(budgeted)


def _judged(pair: CellPair, both: tuple[CellRecord, CellRecord], value: Difference, budgets: Budgets) -> CellChange:
    overhead = overhead_difference(*both)
    unit = both[1].unit
    budgeted = _budgeted(both[1], budgets.of_cell(both[1]), {"value": value, "overhead": overhead})
    change: Change = "unchanged"
    reasons = list(record_notes(*both))
    interval = value.interval
    if value.undecided:
        change = "undecided"
        reasons.insert(0, value.undecided)
    elif value.exceeds(0):
        change = "regressed"
    elif interval is not None and interval[1] < 0:
        change = "improved"
    elif interval is not None and interval != (0, 0):
        reasons.insert(0, f"no significant difference: it is {shown_interval(interval, unit)}")
    if change in ("unchanged", "undecided") and overhead is not None and overhead.interval is not None:
        low, high = overhead.interval
        if any(cell.calls_vary for cell in both) and not overhead.undecided and (low > 0 or high < 0):
            change = "regressed" if low > 0 else "improved"
            reasons.insert(0, f"the overhead differs, {shown_interval((low, high), unit)}")
    return CellChange(pair, change, "; ".join(reasons), value, overhead, budgeted)


def _order(change: CellChange) -> tuple[int, float, str]:
    """The sort key: failed and missing cells first, then the largest relative difference."""
    rank = CHANGES.index("regressed" if change.change == "improved" else change.change)
    relative = 0.0 if change.value is None or not change.value.value else change.value.relative
    return rank, -math.inf if relative is None else -abs(relative), change.pair.title


MOST_REPEATS = 100
"""The largest ``benchmark.repeats``."""

_NAMED_CELLS = 5


@dataclass(frozen=True)
class ComparedRuns:
    """Two runs, or one run twice, with the comparison of their cells.

    ``differs`` has the differences in their provenance. ``again`` are the arguments of a command that measures both
    again; empty if running the experiment of ``after`` does.
    """

    before: Run
    after: Run
    comparison: Comparison
    differs: Sequence[ProvenanceDifference] = ()
    again: Sequence[str] = ()

    @property
    def passes(self) -> bool:
        """Whether each cell is within its budget by numbers on both sides, or is new: the verdict of every form."""
        new = any(cell.pair.before is None for cell in self.comparison.cells)
        is_whole = not (self.before.unfinished and new)  # what is not measured yet is not new
        comparison = self.comparison
        return is_whole and not (comparison.exceeded or comparison.unproved or comparison.not_compared)

    @property
    def is_with_itself(self) -> bool:
        """Whether each cell is compared with itself, so that nothing can differ."""
        pairs = [cell.pair for cell in self.comparison.cells]
        is_same = self.before.record.run == self.after.record.run
        return is_same and all(pair.before and pair.after and "->" not in pair.title for pair in pairs)

    def to_frame(self) -> DataFrame:
        """A row of pandas for each pair of cells. Raises HostError without pandas."""
        rows = []
        for cell in self.comparison.cells:
            cells = {"before": cell.pair.before, "after": cell.pair.after}
            figures: dict[str, object] = {name: cell and cell.value for name, cell in cells.items()}
            figures |= {"difference": cell.value and cell.value.value, "relative": cell.value and cell.value.relative}
            figures["overhead_difference"] = cell.overhead and cell.overhead.value
            words = {"cell": cell.pair.title, "change": cell.change, "unit": cell.pair.first.unit}
            rows.append({**words, **figures, "exceeded": "; ".join(cell.exceeded), "reason": cell.reason})
        return frame(rows)

    def symbols(self, changes: Iterable[CellChange]) -> Mapping[str, ProfileDifference]:
        """The differences by symbol of changes whose cells both have profiles, by the titles of their pairs."""
        differences: dict[str, ProfileDifference] = {}
        for change in changes:
            before, after = change.pair.before, change.pair.after
            if before is not None and after is not None and change.value is not None and change.value.value:
                with suppress(LabError):  # no profile, or a missing or changed file: there is nothing to explain
                    pair = load_pair((self.before.directory, before), (self.after.directory, after))
                    differences[change.pair.title] = difference(*pair)
        return {
            title: profile_difference for title, profile_difference in differences.items() if profile_difference.symbols
        }


def differing_provenance(
    before: RecordedProvenance, after: RecordedProvenance, comparison: Comparison
) -> Sequence[ProvenanceDifference]:
    """The differences in the provenance of two runs, with those of the hosts if times were compared."""
    pairs = [(cell.pair.before, cell.pair.after) for cell in comparison.cells]
    cells = [(cell.id, other_cell.id) for cell, other_cell in pairs if cell is not None and other_cell is not None]
    differences = list(provenance_differences(before, after, cells))
    if any(cell.pair.first.clock == "wall" for cell in comparison.cells):
        differences += host_differences(before, after)
    return differences


def _possible_repeats(cell: CellRecord, repeats: int) -> int:
    """At least so many repeats, as the cell's benchmark takes them; 0 if it takes no such number."""
    is_counted = cell.profile is not None and bool(cell.profile.parts)
    if is_counted and repeats:
        repeats |= 1  # an odd number
    return repeats if repeats <= (MOST_COUNTED_RUNS if is_counted else MOST_REPEATS) else 0


def next_run(compared: ComparedRuns) -> str | None:
    """A command that repeats the undecided cells with enough samples for a verdict; None without such cells."""
    pairs = [
        (change.pair.first, repeats)
        for change in compared.comparison.cells
        if change.change == "undecided" and change.value is not None
        if (repeats := _possible_repeats(change.pair.first, change.value.repeats or 0))
    ]
    if not pairs:
        return None
    most: dict[str | None, int] = {}
    for cell, count in pairs:
        most[cell.table] = max(count, most.get(cell.table, 0))
    words = [*(compared.again or ("run", str(compared.after.directory / EXPERIMENT_FILE)))]
    if len(pairs) <= _NAMED_CELLS:
        words += only(cell for cell, _ in pairs)
    for table, count in most.items():
        key = "benchmark.repeats" if table is None else f"tables.{table}.benchmark.repeats"
        words += ["--set", f"{key}={count}"]
    return command(*words)
