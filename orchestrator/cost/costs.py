# SPDX-License-Identifier: GPL-2.0-only
"""The costs that a run has measured, a hit of each subject on each kernel, and whether they pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction

from orchestrator.benchmarks.calls.program_failures import is_of_failed_calls
from orchestrator.benchmarks.registry import reports
from orchestrator.catalog.data import did_you_mean
from orchestrator.catalog.probes import BASELINE
from orchestrator.comparison.comparison import CellChange, CellPair, Comparison, compare
from orchestrator.cost.in_options import in_options
from orchestrator.cost.line import CostLine
from orchestrator.cost.own_functions import OwnFunction, own_functions
from orchestrator.cost.program_costs import ProgramCost, program_costs
from orchestrator.cost.reference import Reference
from orchestrator.cost.subjects import Subject
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.budgets_in_files import stored_budgets
from orchestrator.plain_text import counted
from orchestrator.profile.stored.profile_difference import ProfileDifference, difference
from orchestrator.profile.stored.profile_files import load_pair, load_profile
from orchestrator.report.figures import figure
from orchestrator.results.budgets import Budget, Budgets
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.exact import exact
from orchestrator.results.modelled import ModelledCell
from orchestrator.results.parameters import (
    ABOUT_HITS,
    AT,
    ATTACHED,
    BPF_FULL,
    BPF_FULL_SAVES,
    CALL,
    ENTERED,
    LISTED,
    WORKLOAD,
)
from orchestrator.results.runs import Run

_SHOWN = 8
NO_VERDICT = "no verdict"
"""The beginning of the note on an overhead that may as well be none (``varying_figures``)."""


@dataclass(frozen=True)
class Cost:
    """A subject's cost on one kernel: its cell, the cell's modelled time, and its change, with its budgets.

    ``new`` says why there was nothing to compare it with, ``unknown`` why what there was has no number.
    ``own_function`` is a function of a module without a probe: a hit is its execution, as nothing is known of calls
    without it; ``own_before`` is the function in the reference. ``own_budget`` is what its hit may take, or a hit of a
    command's runs, of which nobody knows before how many they have. ``no_baseline`` says why calls without it have no
    number, where this leaves no cost. ``programs`` are those of a tool.
    """

    subject: Subject
    cell: CellRecord
    time: ModelledCell | None = None
    change: CellChange | None = None
    new: str = ""
    unknown: str = ""
    own_function: OwnFunction | None = None
    own_before: OwnFunction | None = None
    own_budget: Budget | None = None
    no_baseline: str = ""
    programs: Sequence[ProgramCost] = ()

    @property
    def is_of_call(self) -> bool:
        """Whether its number is of a call: of a tool, whose programs a call may run several times."""
        return self.cell.evidence is not None and bool(self.cell.evidence.programs)

    @property
    def call(self) -> str:
        """The call that it is measured with."""
        workload = WORKLOAD.of(self.cell)
        return CALL.of(self.cell) or (workload or "").removesuffix(".c")

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
    def when_full(self) -> float | None:
        """Instructions of a hit that finds the buffer full that it sends records to; None where it is as any other."""
        saves = BPF_FULL_SAVES.of(self.cell)
        return None if saves is None or self.hit is None else self.hit - float(exact(saves) / self.of_call)

    @property
    def nanoseconds(self) -> float | None:
        """The modelled time of a hit."""
        return None if self.time is None or self.time.overhead is None else self.time.overhead / self.of_call

    @property
    def difference(self) -> float | None:
        """Instructions that a hit takes more than before."""
        if self.own_function is not None:
            before = self.own_before
            return None if before is None else float(self.own_function.instructions - before.instructions)
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
        if self.own_function is not None:
            return self.own_function.times
        return None if self.cell.evidence is None else self.cell.evidence.hits

    @property
    def exceeded(self) -> Sequence[str]:
        """Sentences on figures that exceed their budgets."""
        if self.unknown:
            return ()
        if self.own_function is not None:
            return self._exceeded_by_function(self.own_function)
        if self.own_budget is not None:
            return self._exceeded_by_hit(self.own_budget)
        return () if self.change is None else self.change.exceeded

    def _exceeded_by_hit(self, budget: Budget) -> Sequence[str]:
        hit, most, unit = self.hit, budget.most, self.cell.unit
        if hit is None or most is None or hit <= most:
            return ()
        return [f"a hit of {self.subject.title} takes {figure(hit, unit)} {unit}, allowed {budget}"]

    def _exceeded_by_function(self, function: OwnFunction) -> Sequence[str]:
        budget, before, unit = self.own_budget, self.own_before, self.cell.unit
        if budget is None:
            return ()
        most = budget.most
        if most is None:
            most = None if before is None else before.instructions + budget.increase(float(before.instructions))
        if most is None or function.instructions <= most:
            return ()
        since = "" if before is None else f", {figure(float(before.instructions), unit)} before"
        return [f"{function.name} takes {figure(float(function.instructions), unit)} {unit}{since}, allowed {budget}"]

    @property
    def is_wrong(self) -> bool:
        """Whether it exceeds what is allowed, or nobody can tell."""
        return bool(self.exceeded or self.unknown or self.no_baseline or self.cell.status == "failed")

    @property
    def allowed(self) -> str:
        """The budgets that the user has given it, of a hit as far as they are not percentages."""
        if self.own_function is not None or self.own_budget is not None:
            return "" if self.own_budget is None or self.own_budget == Budget() else str(self.own_budget)
        budgeted = () if self.change is None else self.change.budgeted
        return ", ".join(str(figure.budget.times(Fraction(1, self.of_call))) for figure in budgeted if figure.is_own)

    @property
    def notes(self) -> Sequence[str]:
        """What was done with a BPF program's maps, what its hits do with them, and which hits the number leaves out."""
        said_otherwise = () if self.when_full is None else (BPF_FULL,)
        parameters = (parameter for parameter in ABOUT_HITS if parameter not in said_otherwise)
        return [said for parameter in parameters if (said := parameter.of(self.cell))]


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


@dataclass(frozen=True)
class FunctionCosts:
    """What modules' own functions cost in a ``run``, beside their ``budgets`` and the ``reference``.

    A ``function`` is named by the user: no other has a cost then, and it has one beside calls that do not fail, too.
    """

    run: Run
    budgets: Budgets = field(default_factory=Budgets)
    reference: Reference | None = None
    function: str | None = None

    def among(self, measured: Sequence[Cost]) -> Sequence[Cost]:
        """The same costs; of a module whose calls fail where it is not loaded, those of its own functions.

        A baseline that failed for another reason leaves no cost. Raises UsageError for a function that no call enters.
        """
        return [each for cost in measured for each in self._of(cost)]

    def _of(self, cost: Cost) -> Sequence[Cost]:
        if cost.cell.status != "ok" or not cost.subject.is_module:
            return [cost]
        if self.function is not None:
            functions = self._functions(cost)
            named = [each for each in functions if each.own_function and each.own_function.name == self.function]
            if named:
                return named
            names = [each.own_function.name for each in functions if each.own_function]
            what = f"no call enters {self.function} of {cost.subject.title} on {cost.cell.kernel}"
            hint = f"the calls enter {', '.join(names[:_SHOWN])}" if names else ""
            raise UsageError(what, where="--function", hint=did_you_mean(self.function, names) or hint)
        baseline = _baseline(cost.cell, self.run.record)
        if cost.cell.overhead is not None or baseline is None or baseline.status == "ok":
            return [cost]
        reason = baseline.reason or ""
        if baseline.status != "failed" or not is_of_failed_calls(reason):
            return [replace(cost, no_baseline=reason)]
        return self._functions(cost) or [replace(cost, no_baseline=reason)]

    def _functions(self, cost: Cost) -> Sequence[Cost]:
        budget = self.budgets.of_cell(cost.cell)
        of_hit = None if budget is None or budget.overhead is None else budget.overhead.times(Fraction(1, cost.of_call))
        title = "" if self.reference is None else self.reference.title
        before = self._before(cost)
        costs_of = []
        for function in _functions_in(self.run, cost.cell):
            own_before = None if before is None else before.get(function.name)
            new, unknown = cost.new, cost.unknown
            if self.reference is not None and own_before is None and not new and not unknown:
                if before is None:
                    unknown = f"at {title} its functions were not counted"
                else:
                    new = f"at {title} no call enters {function.name}()"
            own = replace(cost, own_function=function, own_before=own_before, own_budget=of_hit, time=None)
            costs_of.append(replace(own, new=new, unknown=unknown))
        return costs_of

    def _before(self, cost: Cost) -> Mapping[str, OwnFunction] | None:
        """The functions of the cell that this one is compared with; None without one that counted them."""
        cell = None if self.reference is None else self.reference.before.get(cost.cell.id)
        if cell is None or self.reference is None:
            return None
        functions = _functions_in(self.reference.run or self.run, cell)
        return {function.name: function for function in functions} or None


def _functions_in(run: Run, cell: CellRecord) -> Sequence[OwnFunction]:
    proved = ENTERED.of(cell)
    return [] if proved is None or cell.profile is None else own_functions(load_profile(run.directory, cell), proved)


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


def judged(
    lines: Sequence[CostLine], after: Run, reference: Reference | None = None, function: str | None = None
) -> Sequence[Cost]:
    """The costs beside their budgets, and each beside that of the reference.

    Raises UsageError if no call enters the module's ``function`` that the user has named.
    """
    partners: Mapping[str, CellRecord] = {} if reference is None else reference.before
    cells = after.record.cells
    before = cells if reference is None or reference.run is None else reference.run.record.cells
    pairs = [CellPair(partners.get(cell.id), cell) for line in lines for cell in line.records(after.record)]
    budgets = stored_budgets(after.directory)
    measured = [
        replace(cost, programs=program_costs(after.directory, cost.cell))
        for cost in costs_in(lines, after.record, compare(pairs, budgets, before, cells), reference)
    ]
    return FunctionCosts(after, budgets, reference, function).among(measured)
