# SPDX-License-Identifier: GPL-2.0-only
"""A comparison for programs, by documented models. Figures are in the cell's unit."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.report.comparison_figures import command
from orchestrator.results.compared_runs import ComparedRuns
from orchestrator.results.comparison import CellChange, Change
from orchestrator.results.contract import CellRecord
from orchestrator.results.profile_difference import ProfileDifference
from orchestrator.results.verdicts import Difference


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FigureChangeJson(_Answer):
    """A figure in both runs, null where one has none.

    ``relative`` is the difference to the figure before. ``interval`` (95 %), ``p`` (corrected for all cells) and
    ``superiority`` (the probability that a sample after is larger) are of the difference; ``undecided`` says why it
    allows no verdict, and ``repeats`` how many samples would.
    """

    before: float | None
    after: float | None
    difference: float | None
    relative: float | None
    interval: tuple[float, float] | None
    superiority: float | None
    p: float | None
    undecided: str
    repeats: int | None


class BudgetJson(_Answer):
    """What a figure may grow by."""

    figure: Literal["value", "overhead"]
    allowed: str
    beyond: bool


class SymbolChangeJson(_Answer):
    """A symbol's instructions per call, null where it executes nothing."""

    symbol: str
    before: float | None
    after: float | None
    change: float


class CellChangeJson(_Answer):
    """A cell in both runs; an id is null where a run has no such cell."""

    before: str | None
    after: str | None
    change: Change
    reason: str
    unit: str
    value: FigureChangeJson
    overhead: FigureChangeJson
    budgets: list[BudgetJson]
    beyond: list[str]
    symbols: list[SymbolChangeJson]


class RunJson(_Answer):
    """A run that was compared."""

    run: str
    experiment: str
    unfinished: int


class OriginJson(_Answer):
    """Something that the runs were not made with alike; versions are empty where only content tells them apart."""

    what: str
    before: str
    after: str
    detail: list[str]


class NotComparedJson(_Answer):
    """A pair of cells whose difference would mean nothing."""

    before: str | None
    after: str | None
    reason: str


class ComparisonJson(_Answer):
    """A comparison: all cells, the largest relative change of each kind first."""

    before: RunJson
    after: RunJson
    beyond: bool
    counts: dict[Change, int]
    cells: list[CellChangeJson]
    not_compared: list[NotComparedJson]
    differs: list[OriginJson]
    next: str | None


def comparison_json(compared: ComparedRuns) -> ComparisonJson:
    """The comparison as a model."""
    comparison = compared.comparison
    symbols = compared.symbols(comparison.changed)
    before, after = (
        RunJson(run=run.record.run, experiment=run.record.experiment, unfinished=run.unfinished)
        for run in (compared.before, compared.after)
    )
    return ComparisonJson(
        before=before,
        after=after,
        beyond=bool(comparison.beyond),
        counts=dict(comparison.counts),
        cells=[_cell(one, symbols.get(one.pair.title)) for one in comparison.cells],
        not_compared=[
            NotComparedJson(before=_id(one.pair.before), after=_id(one.pair.after), reason=one.reason)
            for one in comparison.not_compared
        ],
        differs=[
            OriginJson(what=one.what, before=one.before, after=one.after, detail=list(one.detail))
            for one in compared.origin
        ],
        next=command(compared),
    )


def comparison_text(compared: ComparedRuns) -> str:
    """The model as text, with one newline at the end."""
    return comparison_json(compared).model_dump_json(indent=2) + "\n"


def _cell(change: CellChange, symbols: ProfileDifference | None) -> CellChangeJson:
    pair = change.pair
    sides = (pair.before, pair.after)
    return CellChangeJson(
        before=_id(pair.before),
        after=_id(pair.after),
        change=change.change,
        reason=change.reason,
        unit=pair.first.unit,
        value=_figure(change.value, *(None if one is None else one.value for one in sides)),
        overhead=_figure(change.overhead, *(None if one is None else one.overhead for one in sides)),
        budgets=[
            BudgetJson(figure=one.figure, allowed=str(one.allowance), beyond=one.is_beyond) for one in change.held
        ],
        beyond=list(change.beyond),
        symbols=[
            SymbolChangeJson(
                symbol=one.title,
                before=None if one.before is None else float(one.before),
                after=None if one.after is None else float(one.after),
                change=float(one.change),
            )
            for one in (symbols.symbols if symbols is not None else ())
        ],
    )


def _figure(found: Difference | None, before: float | None, after: float | None) -> FigureChangeJson:
    return FigureChangeJson(
        before=before,
        after=after,
        difference=None if found is None else found.value,
        relative=None if found is None else found.relative,
        interval=None if found is None else found.interval,
        superiority=None if found is None else found.superiority,
        p=None if found is None else found.p,
        undecided="" if found is None else found.undecided,
        repeats=None if found is None else found.repeats,
    )


def _id(cell: CellRecord | None) -> str | None:
    return None if cell is None else cell.id
