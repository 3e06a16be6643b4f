# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as a table: the cells that changed, and below each the symbols that explain it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from orchestrator.report.comparison_figures import (
    CellNames,
    budget_figure,
    change_figure,
    command,
    interval_figure,
    origin_sentences,
    reasons,
    relative_figure,
    remarks,
    side,
    summary,
)
from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import Grid, Row
from orchestrator.report.profile_figures import mark, others, per_call, signed
from orchestrator.report.sheet import Sheet
from orchestrator.results.compared_runs import ComparedRuns
from orchestrator.results.comparison import CellChange
from orchestrator.results.profile_difference import ProfileDifference

_SYMBOLS = 5
_STYLES = {"dearer": "red", "failed": "red", "vanished": "red", "cheaper": "green", "mended": "green"}


def comparison_sheet(compared: ComparedRuns, limit: int | None = None) -> Sheet:
    """The changed cells, the largest relative change first; those behind the first ``limit`` share a row."""
    changed = compared.comparison.changed
    listed = changed if limit is None or len(changed) <= limit + 1 else changed[:limit]
    names = CellNames(compared.comparison)
    said = reasons(listed)
    with_interval = any(interval_figure(one.value, one.pair.first.unit) for one in listed)
    headings = [
        "before",
        "after",
        "change",
        "",
        *(["95 %"] if with_interval else []),
        "change of overhead",
        "",
        "budget",
    ]
    symbols = compared.symbols(listed)
    rows = [
        row
        for one in listed
        for row in _rows(one, names.of(one), symbols.get(one.pair.title), said, with_interval=with_interval)
    ]
    if len(listed) < len(changed):
        rows.append(Row(others(len(changed) - len(listed)), [""] * len(headings)))
    unchanged = [Row("unchanged", [str(compared.comparison.counts.get("unchanged", 0)), *[""] * (len(headings) - 1)])]
    common = [f"all cells: {'/'.join(names.common)}"] if names.common else []
    next_command = command(compared)
    return Sheet(
        title=compared.title,
        facts=[summary(compared), *origin_sentences(compared), *common],
        grid=Grid(headings, [block for block in (rows, unchanged) if block], together=len(headings)),
        sentences=[*remarks(compared), *([f"To decide: {next_command}"] if next_command else [])],
        footnotes=[Footnote(number, text) for number, text in enumerate(said, start=1)],
        proofs=[],
    )


def _rows(
    change: CellChange, name: str, symbols: ProfileDifference | None, said: Sequence[str], *, with_interval: bool
) -> Iterator[Row]:
    unit = change.pair.first.unit
    noted = f" [{said.index(change.reason) + 1}]" if change.reason else ""
    figures = [
        side(change.pair.before),
        side(change.pair.after),
        change_figure(change.value, unit),
        relative_figure(change.value),
        *([interval_figure(change.value, unit)] if with_interval else []),
        change_figure(change.overhead, unit),
        f"{change.change}{noted}",
        budget_figure(change),
    ]
    yield Row(name, figures, _STYLES.get(change.change, "") if change.beyond or change.change == "mended" else "")
    if symbols is not None:
        rest = [""] * (len(figures) - 3)
        for one in symbols.symbols[:_SYMBOLS]:
            sides = [per_call(one.before), per_call(one.after), signed(one.change)]
            yield Row(one.title, [*sides, mark(one.before, one.after), *rest[1:]], depth=2)
        if len(symbols.symbols) > _SYMBOLS:
            hidden = symbols.symbols[_SYMBOLS:]
            together = signed(sum((one.change for one in hidden), start=Fraction(0)))
            yield Row(f"{others(len(hidden))}, by symbol", ["", "", together, *rest], depth=2)
