# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as a table: the cells that changed, and below each the symbols that explain it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from orchestrator.report.comparison_figures import (
    CellNames,
    budget_figure,
    command,
    common_parts,
    difference_figures,
    experiments,
    origin_sentences,
    reasons,
    remarks,
    runs_sentence,
    side,
    summary,
)
from orchestrator.report.figures import figure
from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import Grid, Row
from orchestrator.report.profile_figures import mark, others, per_call, signed
from orchestrator.report.sheet import Sheet
from orchestrator.results.compared_runs import ComparedRuns
from orchestrator.results.comparison import CellChange
from orchestrator.results.profile_difference import ProfileDifference

_SYMBOLS = 5
"""Symbols of a cell that are listed; the rest are one row."""
_HEADINGS = ("before", "after", "change", "", "95 %", "", "budget")
_TOGETHER = 4
"""Columns that are not parted where a table is wider than the terminal."""
_NARROWEST = 16
"""Characters of a cell's name on one line, at least, where the terminal is too narrow for the whole name."""
_ALWAYS = 3
"""The first columns, which are there even without a figure."""
_STYLES = {"dearer": "red", "failed": "red", "vanished": "red", "cheaper": "green", "mended": "green"}


def comparison_sheet(compared: ComparedRuns, limit: int | None = None) -> Sheet:
    """The changed cells, the largest relative change first; those behind the first ``limit`` share a row."""
    changed = compared.comparison.changed
    listed = changed if limit is None or len(changed) <= limit + 1 else changed[:limit]
    names = CellNames(compared.comparison)
    said = reasons(listed)
    symbols = compared.symbols(listed)
    rows = [row for one in listed for row in _rows(one, names.of(one), symbols.get(one.pair.title), said)]
    if len(listed) < len(changed):
        rows.append(Row(others(len(changed) - len(listed)), [""] * len(_HEADINGS)))
    next_command = command(compared)
    return Sheet(
        title=experiments(compared),
        facts=[summary(compared), *runs_sentence(compared), *origin_sentences(compared), *common_parts(compared)],
        grid=_grid(rows) if rows else _nothing_changed(compared),
        sentences=[*remarks(compared), *([f"To decide: {next_command}"] if next_command else [])],
        footnotes=[Footnote(number, text) for number, text in enumerate(said, start=1)],
        proofs=[],
    )


def _grid(rows: Sequence[Row]) -> Grid:
    """The rows without the columns that no cell here has a figure for."""
    used = [index for index, _ in enumerate(_HEADINGS) if index < _ALWAYS or any(row.cells[index] for row in rows)]
    narrowed = [replace(row, cells=[row.cells[index] for index in used]) for row in rows]
    return Grid([_HEADINGS[index] for index in used], [narrowed], together=_TOGETHER, narrowest=_NARROWEST)


def _nothing_changed(compared: ComparedRuns) -> Grid:
    return Grid(["cells"], [[Row("unchanged", [str(compared.comparison.counts.get("unchanged", 0))])]])


def _rows(change: CellChange, name: str, symbols: ProfileDifference | None, said: Sequence[str]) -> Iterator[Row]:
    unit = change.pair.first.unit
    noted = f" [{said.index(change.reason) + 1}]" if change.reason else ""
    figures = [
        side(change.pair.before),
        side(change.pair.after),
        *difference_figures(change.value, unit),
        f"{change.change}{noted}",
        budget_figure(change),
    ]
    yield Row(name, figures, _STYLES.get(change.change, "") if change.beyond or change.change == "mended" else "")
    overhead = change.overhead
    if overhead is not None and (overhead.before or overhead.after):
        sides = [figure(one, unit) for one in (overhead.before, overhead.after)]
        yield Row("overhead", [*sides, *difference_figures(overhead, unit), "", ""], depth=2)
    rest = [""] * (len(_HEADINGS) - _ALWAYS)
    listed = symbols.symbols if symbols is not None else []
    for one in listed[:_SYMBOLS]:
        sides = [per_call(one.before), per_call(one.after), signed(one.change)]
        yield Row(one.title, [*sides, mark(one.before, one.after), *rest[1:]], depth=2)
    hidden = listed[_SYMBOLS:]
    if hidden:
        together = signed(sum((one.change for one in hidden), start=Fraction(0)))
        yield Row(f"{others(len(hidden))}, by symbol", ["", "", together, *rest], depth=2)
