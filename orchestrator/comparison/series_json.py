# SPDX-License-Identifier: GPL-2.0-only
"""What ``series --format json`` prints (docs/series.md), made from a measured series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from orchestrator.comparison.comparison import CellChange, Change
from orchestrator.comparison.series import MeasuredCommit, MeasuredSeries, SeriesStep
from orchestrator.profile.stored.profile_difference import SymbolDifference
from orchestrator.results.contract import CONTRACT_OF_COMPARISONS, CellRecord, Clock, Status, Unit
from orchestrator.results.printed_json import Printed


class ChangeToBase(Printed):
    """A cell's change to the base of the series."""

    change: float | None
    """The difference, in the cell's unit; None if unknown."""
    verdict: Change
    """The verdict on it."""

    @classmethod
    def of(cls, change: CellChange) -> ChangeToBase:
        return cls(change=change.value and change.value.value, verdict=change.change)


class SeriesCell(Printed):
    """A cell at a commit; changes are to the last commit before that has a number of the cell."""

    id: str
    """The cell's id."""
    status: Status
    """Its status, as in the result contract."""
    value: float | None
    """Its value; None without a number."""
    unit: Unit
    """The unit of value and changes."""
    clock: Clock
    """The clock."""
    change: float | None
    """The difference to the commit before."""
    verdict: Change | None
    """The verdict on it; None at the base, and if it cannot be compared."""
    why: str | None
    """Why this is the verdict, or why it cannot be compared."""
    of_base: ChangeToBase | None
    """The change to the base; None at the base."""
    symbols: Sequence[SymbolDifference]
    """Symbols that differ, if both commits have a profile."""
    exceeded: Sequence[str]
    """Sentences on exceeded budgets."""

    @classmethod
    def of(cls, measured: MeasuredSeries, cell: CellRecord, step: SeriesStep | None) -> SeriesCell:
        change = None if step is None else step.change(cell.id)
        symbols = None if step is None else step.symbols(cell.id)
        of_base = None if step is None else step.of_base.get(cell.id)
        refusal = "" if step is None else step.refusal(cell.id)
        return cls(
            id=cell.id,
            status=cell.status,
            value=cell.value,
            unit=cell.unit,
            clock=cell.clock,
            change=change and change.value and change.value.value,
            verdict=change and change.change,
            why=measured.plain(refusal if change is None else change.reason) or None,
            of_base=of_base and ChangeToBase.of(of_base),
            symbols=[] if symbols is None else symbols.symbols,
            exceeded=[] if of_base is None else of_base.exceeded,
        )


class PrintedCommit(Printed):
    """A commit of the series, or its base."""

    hash: str
    """The commit's hash."""
    subject: str
    """The first line of its message."""
    author: str
    """Its author's name."""
    date: str
    """Its date."""
    merge: bool
    """Whether it is a merge."""
    reverts: str | None
    """The hash of the commit that it reverts, as its message says."""
    run: str | None
    """The run that measured it; None if it was not measured."""
    same_kernel_as: str | None
    """An earlier commit that builds the same kernel, and has the same run."""
    reason: str | None
    """Why it has no run."""
    cells: Sequence[SeriesCell]
    """The cells of its run."""

    @classmethod
    def of(cls, measured: MeasuredSeries, commit: MeasuredCommit, step: SeriesStep | None) -> PrintedCommit:
        cells = () if commit.run is None else commit.run.record.cells
        return cls(
            hash=commit.commit.hash,
            subject=commit.commit.subject,
            author=commit.commit.author,
            date=commit.commit.date,
            merge=commit.in_series.is_merge,
            reverts=commit.in_series.reverts or None,
            run=commit.run and commit.run.record.run,
            same_kernel_as=commit.same_as or None,
            reason=measured.plain(commit.reason) or None,
            cells=[SeriesCell.of(measured, cell, step) for cell in cells],
        )


class PrintedSeries(Printed):
    """A patch series, measured commit by commit."""

    contract: Literal[2] = CONTRACT_OF_COMPARISONS
    """The version of these keys and words."""
    experiment: str
    """The experiment's file."""
    base: PrintedCommit
    """The commit that the series is based on."""
    commits: Sequence[PrintedCommit]
    """The commits, oldest first."""
    wrong: bool
    """Whether the status is 1: a budget is exceeded, a commit has no run, or a cell failed or is missing."""

    @classmethod
    def of(cls, measured: MeasuredSeries) -> PrintedSeries:
        return cls(
            experiment=str(measured.config),
            base=PrintedCommit.of(measured, measured.commits[0], None),
            commits=[PrintedCommit.of(measured, step.measured, step) for step in measured.steps],
            wrong=measured.is_wrong,
        )
