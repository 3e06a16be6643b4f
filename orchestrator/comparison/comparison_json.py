# SPDX-License-Identifier: GPL-2.0-only
"""What ``compare --format json`` prints (docs/comparing.md), made from a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from orchestrator.comparison.comparison import BudgetedFigure, CellChange, CellPair, Change, ComparedRuns, next_run
from orchestrator.comparison.verdicts import Difference, Figure
from orchestrator.profile.stored.profile_difference import SymbolDifference
from orchestrator.results.contract import CONTRACT_OF_COMPARISONS, Unit
from orchestrator.results.printed_json import Printed
from orchestrator.results.recorded_provenance import ProvenanceDifference
from orchestrator.results.runs import Run


class ComparedRun(Printed):
    """One of the two runs."""

    run: str
    """The run's id."""
    experiment: str
    """Its experiment."""
    unfinished: int
    """Cells without an outcome."""

    @classmethod
    def of(cls, run: Run) -> ComparedRun:
        return cls(run=run.record.run, experiment=run.record.experiment, unfinished=run.unfinished)


class ComparedFigure(Printed):
    """A cell's value or overhead in both runs, in its unit; None if unknown."""

    before: float | None
    """The figure before."""
    after: float | None
    """The figure after."""
    difference: float | None
    """How much larger the figure after is."""
    relative: float | None
    """The difference divided by the figure before."""
    interval: tuple[float, float] | None
    """The interval of the difference."""
    superiority: float | None
    """The probability that a sample after is larger than one before; None if nothing is tested."""
    p: float | None
    """The test's p-value, corrected for the number of cells; None if nothing is tested."""
    undecided: str
    """Why there is no verdict; empty if there is one."""
    repeats: int | None
    """Samples for a verdict; None if more do not help."""

    @classmethod
    def of(cls, difference: Difference | None, before: float | None, after: float | None) -> ComparedFigure:
        return cls(
            before=before,
            after=after,
            difference=None if difference is None else difference.value,
            relative=None if difference is None else difference.relative,
            interval=None if difference is None else difference.interval,
            superiority=None if difference is None else difference.superiority,
            p=None if difference is None else difference.p,
            undecided="" if difference is None else difference.undecided,
            repeats=None if difference is None else difference.repeats,
        )


class JudgedBudget(Printed):
    """A budget of a cell, and whether the cell exceeds it."""

    figure: Figure
    """The figure that has the budget."""
    allowed: str
    """The budget as it is written in an experiment."""
    exceeded: bool
    """Whether the figure decidedly exceeds it."""

    @classmethod
    def of(cls, budgeted: BudgetedFigure) -> JudgedBudget:
        return cls(figure=budgeted.figure, allowed=str(budgeted.budget), exceeded=budgeted.is_exceeded)


class ChangedCell(Printed):
    """A pair of cells and its change."""

    before: str | None
    """The id of the cell before; None if its run has none."""
    after: str | None
    """The id of the cell after; None if its run has none."""
    change: Change
    """The verdict."""
    reason: str
    """Why, as a sentence; may be empty."""
    unit: Unit
    """The unit of all figures."""
    value: ComparedFigure
    """The cell's value."""
    overhead: ComparedFigure
    """The cell's overhead."""
    budgets: Sequence[JudgedBudget]
    """Its budgets; an exact value has one of +0 without a budget of its own."""
    exceeded: Sequence[str]
    """Sentences on exceeded budgets; a cell that failed or is missing exceeds any."""
    unproved: str
    """Why nobody can tell whether it has grown; empty otherwise."""
    symbols: Sequence[SymbolDifference]
    """Symbols that differ, if both cells have a profile."""

    @classmethod
    def of(cls, change: CellChange, symbols: Sequence[SymbolDifference]) -> ChangedCell:
        before, after = change.pair.before, change.pair.after
        values = (None if before is None else before.value, None if after is None else after.value)
        overheads = (None if before is None else before.overhead, None if after is None else after.overhead)
        return cls(
            before=before and before.id,
            after=after and after.id,
            change=change.change,
            reason=change.reason,
            unit=change.pair.first.unit,
            value=ComparedFigure.of(change.value, *values),
            overhead=ComparedFigure.of(change.overhead, *overheads),
            budgets=[JudgedBudget.of(budgeted) for budgeted in change.budgeted],
            exceeded=change.exceeded,
            unproved=change.unproved,
            symbols=symbols,
        )


class RefusedPair(Printed):
    """A pair of cells that cannot be compared."""

    before: str | None
    """The id of the cell before."""
    after: str | None
    """The id of the cell after."""
    reason: str
    """Why not, such as different work."""

    @classmethod
    def of(cls, pair: CellPair, reason: str) -> RefusedPair:
        return cls(before=pair.before and pair.before.id, after=pair.after and pair.after.id, reason=reason)


class DifferingFact(Printed):
    """A difference between two runs besides their numbers."""

    what: str
    """What differs, such as QEMU or a module."""
    before: str
    """Its version before; empty with ``after`` if only the content differs."""
    after: str
    """Its version after."""
    detail: Sequence[str]
    """Files or packages whose content differs, if known."""

    @classmethod
    def of(cls, difference: ProvenanceDifference) -> DifferingFact:
        return cls(what=difference.what, before=difference.before, after=difference.after, detail=difference.detail)


class PrintedComparison(Printed):
    """Two runs compared cell by cell, or one run's cells on two kernels."""

    contract: Literal[2] = CONTRACT_OF_COMPARISONS
    """The version of these keys and words."""
    before: ComparedRun
    """The run before."""
    after: ComparedRun
    """The run after."""
    exceeded: bool
    """Whether a cell exceeds its budget, has failed, or is missing."""
    passes: bool
    """Whether the status is 0."""
    counts: Mapping[Change, int]
    """The number of cells by change, without zeros."""
    cells: Sequence[ChangedCell]
    """All pairs, the largest change first."""
    not_compared: Sequence[RefusedPair]
    """Pairs that cannot be compared."""
    differs: Sequence[DifferingFact]
    """Differences in the provenance of the runs."""
    next: str | None
    """The command that decides the undecided cells; None without such."""

    @classmethod
    def of(cls, compared: ComparedRuns) -> PrintedComparison:
        comparison = compared.comparison
        by_pair = compared.symbols(comparison.changed)
        symbols = {title: difference.symbols for title, difference in by_pair.items()}
        return cls(
            before=ComparedRun.of(compared.before),
            after=ComparedRun.of(compared.after),
            exceeded=bool(comparison.exceeded),
            passes=compared.passes,
            counts=comparison.counts,
            cells=[ChangedCell.of(cell, symbols.get(cell.pair.title, ())) for cell in comparison.cells],
            not_compared=[RefusedPair.of(pair, why) for pair, why in comparison.not_compared],
            differs=[DifferingFact.of(difference) for difference in compared.differs],
            next=next_run(compared),
        )
