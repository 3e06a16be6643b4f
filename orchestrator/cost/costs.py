# SPDX-License-Identifier: GPL-2.0-only
"""The costs that a run has measured, a hit of each subject on each kernel, and whether they pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

from orchestrator.benchmarks.calls.call_programs import is_of_failed_calls
from orchestrator.benchmarks.registry import reports
from orchestrator.catalog.probes import BASELINE
from orchestrator.comparison.comparison import CellChange, CellPair, Comparison, compare
from orchestrator.cost.in_options import in_options
from orchestrator.cost.line import CostLine
from orchestrator.cost.own_functions import OwnFunction, own_functions
from orchestrator.cost.reference import Reference
from orchestrator.cost.subjects import Subject
from orchestrator.errors import LabError
from orchestrator.experiment.source import stored_budgets
from orchestrator.plain_text import counted
from orchestrator.profile.stored.profile_difference import ProfileDifference, difference
from orchestrator.profile.stored.profile_files import load_pair, load_profile
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.exact import exact
from orchestrator.results.modelled import ModelledCell
from orchestrator.results.parameters import (
    ABOUT_HITS,
    AT,
    ATTACHED,
    ENTERED,
    LISTED,
)
from orchestrator.results.runs import Run

NO_VERDICT = "no verdict"
"""The beginning of the note on an overhead that may as well be none (``varying_figures``)."""


@dataclass(frozen=True)
class Cost:
    """A subject's cost on one kernel: its cell, the cell's modelled time, and its change, with its budgets.

    ``new`` says why there was nothing to compare it with, ``unknown`` why what there was has no number.
    ``own_function`` is a function of a module without a probe: a hit is its execution, as nothing is known of calls
    without it.
    ``no_baseline`` says why calls without it have no number, where this leaves no cost.
    """

    subject: Subject
    cell: CellRecord
    time: ModelledCell | None = None
    change: CellChange | None = None
    new: str = ""
    unknown: str = ""
    own_function: OwnFunction | None = None
    no_baseline: str = ""

    @property
    def of_call(self) -> int:
        """Hits of one call."""
        return 1 if self.cell.evidence is None else self.cell.evidence.hits_per_call

    @property
    def hit(self) -> float | None:
        """Instructions of a hit; None where the calls vary by more than it."""
        if self.own_function is not None:
            return float(self.own_function.instructions)
        if self.cell.overhead is None or self.cell.verdict == "none":
            return None
        return float(exact(self.cell.overhead) / self.of_call)

    @property
    def nanoseconds(self) -> float | None:
        """The modelled time of a hit."""
        return None if self.time is None or self.time.overhead is None else self.time.overhead / self.of_call

    @property
    def difference(self) -> float | None:
        """Instructions that a hit takes more than before."""
        overhead = None if self.change is None else self.change.overhead
        return None if overhead is None else float(exact(overhead.value) / self.of_call)

    @property
    def mechanism(self) -> str:
        if self.own_function is not None:
            return f"in {self.own_function.name}"
        seen = "" if self.cell.evidence is None else self.cell.evidence.mechanism
        elsewhere = LISTED.of(self.cell) if seen == "elsewhere" else None
        if elsewhere is not None:
            return f"at {elsewhere.partition(',')[0]}"
        return ATTACHED.of(self.cell) or self.subject.mechanism or ("" if seen == "own" else seen)

    @property
    def reason(self) -> str | None:
        """Why it has no number, in the words of the command."""
        if self.cell.verdict == "none":
            return next((note for note in self.cell.notes if note.startswith(NO_VERDICT)), NO_VERDICT)
        if self.no_baseline:
            return f"the calls without it were not measured: {in_options(self.no_baseline)}"
        return None if self.cell.reason is None else in_options(self.cell.reason)

    @property
    def hits(self) -> int | None:
        return None if self.cell.evidence is None else self.cell.evidence.hits

    @property
    def exceeded(self) -> Sequence[str]:
        """Sentences on figures that exceed their budgets."""
        return () if self.change is None or self.unknown else self.change.exceeded

    @property
    def is_wrong(self) -> bool:
        """Whether it exceeds what is allowed, or nobody can tell."""
        return bool(self.exceeded or self.unknown or self.no_baseline or self.cell.status == "failed")

    @property
    def allowed(self) -> str:
        """The budgets that the user has given it, of a hit as far as they are not percentages."""
        budgeted = () if self.change is None else self.change.budgeted
        return ", ".join(str(figure.budget.times(Fraction(1, self.of_call))) for figure in budgeted if figure.is_own)

    @property
    def notes(self) -> Sequence[str]:
        """What was done with a BPF program's maps, what its hits do with them, and which hits the number leaves out."""
        return [said for parameter in ABOUT_HITS if (said := parameter.of(self.cell))]


def costs_in(
    lines: Sequence[CostLine], record: RunRecord, changes: Comparison, reference: Reference | None = None
) -> Sequence[Cost]:
    """The costs of the lines in a run, in their order and that of the kernels; equal titles of two files together."""
    times = reports().times(record)
    changed = {cell.pair.after.id: cell for cell in changes.cells if cell.pair.after is not None}
    refused = {pair.after.id: why for pair, why in changes.not_compared if pair.after is not None}
    rows = [
        Cost(
            line.subject,
            cell,
            times.get(cell.id),
            changed.get(cell.id),
            "" if reference is None else reference.why_new(cell),
            refused.get(cell.id) or ("" if reference is None else reference.unknown(cell) or _doubt(changed, cell)),
        )
        for line in lines
        for cell in line.records(record)
    ]
    titles = list(dict.fromkeys(cost.subject.title for cost in rows))
    return sorted(rows, key=lambda cost: titles.index(cost.subject.title))


def _doubt(changed: Mapping[str, CellChange], cell: CellRecord) -> str:
    """Why no increase of the cell can exceed its budget; empty if one can, or none is budgeted."""
    budgeted = changed[cell.id].budgeted if cell.id in changed else ()
    increases = (of_figure for of_figure in budgeted if of_figure.budget.most is None)
    doubts = (increase.difference.undecided for increase in increases if increase.is_own)
    return next(filter(None, doubts), "")


_UNJUDGED = "calls fail without the module, so what a hit adds to them is not known, and no budget judges it"


def with_own_functions(measured: Sequence[Cost], run: Run, *, is_judged: bool) -> Sequence[Cost]:
    """The same costs; of a module whose calls fail where it is not loaded, those of its own functions.

    If they are to be judged, they are unknown. A baseline that failed for another reason leaves no cost.
    """
    costs_of = [each for cost in measured for each in _without_baseline(cost, run)]
    return [
        replace(cost, unknown=_UNJUDGED) if is_judged and cost.own_function is not None else cost for cost in costs_of
    ]


def _without_baseline(cost: Cost, run: Run) -> Sequence[Cost]:
    baseline = _baseline(cost.cell, run.record)
    is_alone = cost.cell.status == "ok" and cost.cell.overhead is None
    if not is_alone or baseline is None or baseline.status == "ok":
        return [cost]
    reason = baseline.reason or ""
    if baseline.status != "failed" or not is_of_failed_calls(reason):
        return [replace(cost, no_baseline=reason)]
    return _own_costs(cost, run) or [replace(cost, no_baseline=reason)]


def _own_costs(cost: Cost, run: Run) -> Sequence[Cost]:
    proved = ENTERED.of(cost.cell)
    if proved is None or cost.cell.profile is None:
        return []
    functions = own_functions(load_profile(run.directory, cost.cell), proved)
    return [replace(cost, own_function=function, time=None) for function in functions]


def problem(costs: Sequence[Cost], missed: Sequence[str] = ()) -> str:
    """Why the costs do not pass, as a sentence; empty if each is measured, compared and within what is allowed."""
    every = counted(len(costs), "cost")
    measured = sum(cost.hit is not None for cost in costs)
    counts = {
        "could not be proved": sum(cost.hit is None and cost.cell.status != "unsupported" for cost in costs),
        "could not be compared": sum(bool(cost.unknown) for cost in costs),
        "exceed what is allowed": sum(bool(cost.exceeded) for cost in costs),
    }
    for what, count in counts.items():
        if count:
            return f"{count} of {every} {what.replace('exceed', 'exceeds') if count == 1 else what}."
    if not measured:
        return "No cost could be measured."
    return f"{counted(measured, 'cost')} measured; no known call reaches {len(missed)} more." if missed else ""


def verdict(costs: Sequence[Cost], missed: Sequence[str] = ()) -> str:
    """One sentence on all costs, and on what has none."""
    wrong = problem(costs, missed)
    if wrong:
        return f"❌ {wrong}"
    measured = sum(cost.hit is not None for cost in costs)
    counts = {"new": sum(bool(cost.new) for cost in costs), "unsupported": len(costs) - measured}
    more = "".join(f"; {count} {what}" for what, count in counts.items() if count)
    return f"✅ {counted(measured, 'cost')} measured, none exceeds what is allowed{more}."


def explained(costs: Sequence[Cost], before: Run, after: Run) -> Iterator[tuple[Cost, ProfileDifference]]:
    """The symbols of each cost that changed, beside those before, or exceeds its budget, beside those of no probe."""
    for cost in costs:
        if not (cost.exceeded or cost.difference):
            continue
        other_cell, run = (cost.change.pair.before if cost.change and cost.difference else None), before
        if other_cell is None:
            other_cell, run = _baseline(cost.cell, after.record), after
        if other_cell is not None and other_cell.profile is not None and cost.cell.profile is not None:
            with suppress(LabError):  # a missing or changed file; the costs do not depend on it
                yield cost, difference(*load_pair((run.directory, other_cell), (after.directory, cost.cell)))


def _baseline(cell: CellRecord, record: RunRecord) -> CellRecord | None:
    def place(record: CellRecord) -> tuple[object, ...]:
        return record.table, record.kernel, AT.of(record)

    baselines = (known for known in record.cells if known.probe == BASELINE)
    return next((baseline for baseline in baselines if place(baseline) == place(cell)), None)


def judged(lines: Sequence[CostLine], after: Run, reference: Reference | None = None) -> Sequence[Cost]:
    """The costs beside their budgets, and each beside that of the reference."""
    partners: Mapping[str, CellRecord] = {} if reference is None else reference.before
    cells = after.record.cells
    before = cells if reference is None or reference.run is None else reference.run.record.cells
    pairs = [CellPair(partners.get(cell.id), cell) for line in lines for cell in line.records(after.record)]
    budgets = stored_budgets(after.directory)
    measured = costs_in(lines, after.record, compare(pairs, budgets, before, cells), reference)
    return with_own_functions(measured, after, is_judged=reference is not None or bool(budgets.plain()))
