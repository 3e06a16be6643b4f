# SPDX-License-Identifier: GPL-2.0-only
"""The report of marked loops: in the order of the document of 2006."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from orchestrator.benchmarks.markers.rows import BENCHMARK, marker_benchmarks, marker_row
from orchestrator.catalog.cpus import cpu
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import NOTHING, figure, published_figure, unit_name
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Row
from orchestrator.report.highlights import Highlight, Rank, overhead_findings
from orchestrator.report.proofs import proof_lists
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import CellGroup, TableReport, processors
from orchestrator.results.contract import CellRecord
from orchestrator.results.parameters import ROUNDS


@dataclass(frozen=True)
class _Figures:
    """A row: the rounds of a loop, its cost or the difference to another loop's, and what was published."""

    rounds: str
    cost: str
    published: float | None


def _columns(unit: str) -> Columns[_Figures]:
    return Columns(
        [
            Column("rounds", attrgetter("rounds")),
            Column(f"{unit_name(unit)} a loop", attrgetter("cost")),
            Column(f"published {marker_benchmarks().unit}", lambda figures: published_figure(figures.published)),
        ],
        together=3,
    )


def _blocks(table: Columns[_Figures], cells: Mapping[str, CellRecord], footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    document = marker_benchmarks()
    blocks: dict[str, list[Row]] = {}

    def loop(title: str, cell: CellRecord, published: float | None) -> Row:
        # "unsupported" is too wide for the column; the footnote has the reason.
        lacking = NOTHING if cell.status == "unsupported" else cell.status
        cost = lacking if cell.value is None else figure(cell.value, cell.unit)
        rounds = ROUNDS.of(cell)
        return table.row(
            title,
            _Figures(NOTHING if rounds is None else str(rounds), cost + footnotes.marks(cell), published),
        )

    def less(name: str, minus: str, what: str, published: float | None) -> Row:
        difference = figure(_difference(cells, name, minus), cells[name].unit)
        return table.row(f"  {what}", _Figures("", difference, published))

    for group, title in document.groups.items():
        blocks[title] = []
        for name, row in document.rows.items():
            if row.group == group and name in cells:
                blocks[title].append(loop(row.title, cells[name], row.published))
                if row.minus is not None:
                    blocks[title].append(less(name, row.minus.row, row.minus.what, row.minus.published))
    blocks["Not in this version's catalogue"] = [
        loop(name, cell, None) for name, cell in cells.items() if name not in document.rows
    ]
    blocks["Conclusions"] = [
        less(conclusion.row, conclusion.minus, conclusion.what, conclusion.published)
        for conclusion in document.conclusions
        if conclusion.row in cells and conclusion.minus in cells
    ]
    for title, rows in blocks.items():
        if rows:
            yield [table.title(title), *rows]


def _difference(cells: Mapping[str, CellRecord], name: str, minus: str) -> float | None:
    """The difference of two rows' costs; None where one has no number, or their kernels differ."""
    cell, other_cell = cells.get(name), cells.get(minus)
    if (
        cell is None
        or other_cell is None
        or cell.value is None
        or other_cell.value is None
        or cell.kernel != other_cell.kernel
    ):
        return None
    return cell.value - other_cell.value


def _by_row(group: CellGroup) -> dict[str, CellRecord]:
    """A group's cells by the names of their rows; of two cells of a row, the one on the group's own kernel."""
    return {_row_name(cell): cell for cell in sorted(group.cells, key=group.elsewhere, reverse=True)}


def _row_name(cell: CellRecord) -> str:
    """The catalogue's name of a cell's row; the probe's name where the catalogue lacks the row."""
    row = marker_row(cell.probe)
    return next((name for name, known in marker_benchmarks().rows.items() if known is row), cell.probe)


_ADDED = ("empty", "memcpy")
"""Groups whose loops differ little: their charts show the cost that a marker adds, not the cost of a loop."""


def _chart(group: CellGroup, loops: str, title: str) -> BarChart | None:
    """The costs of a group's loops, or the differences to the loops they are compared with; None without cells."""
    cells, first, adds = _by_row(group), group.first, loops in _ADDED
    rows, measured, published = [], [], []
    for name, row in marker_benchmarks().rows.items():
        if row.group == loops and name in cells and (row.minus or not adds):
            value = _difference(cells, name, row.minus.row) if adds and row.minus else cells[name].value
            documented = row.minus.published if adds and row.minus else row.published
            rows.append(row)
            lacking = "nothing to compare" if cells[name].value is not None else cells[name].status
            measured.append(Bar(value, lacking if value is None else figure(value, cells[name].unit)))
            published.append(Bar(documented, "" if documented is None else published_figure(documented)))
    if not rows:
        return None
    panes = [(f"measured, {unit_name(first.unit)}", [Series("", measured)])]
    if any(bar.value is not None for bar in published):
        panes.append((f"published, {marker_benchmarks().unit}", [Series("published", published)]))
    width = 10 if len(rows) >= 5 else 16
    what = "what a marker adds to a loop" if adds else "cost of a loop"
    return BarChart(
        title=title,
        subtitle=f"{what}; measured on {first.cpu}, {processors(first)}, {group.kernel}",
        labels=["\n".join(textwrap.wrap(row.title, width)) for row in rows],
        panes=panes,
    )


class MarkersReport(TableReport):
    """A table for each kernel; loops that only another kernel supports are in the same table."""

    def handles(self, benchmark: str) -> bool:
        return benchmark == BENCHMARK

    def sheet(self, groups: Sequence[CellGroup]) -> Sheet:
        (group,) = groups
        document, first = marker_benchmarks(), group.first
        cells, table = _by_row(group), _columns(first.unit)
        shown = [cell for cell in group.cells if cells[_row_name(cell)] is cell]
        elsewhere = [cell for cell in shown if cell.status == "ok" and group.elsewhere(cell)]
        footnotes = Footnotes(
            shown, _row_name, lambda cell: f"measured on {cell.kernel}" if cell in elsewhere else None
        )
        return Sheet(
            title=document.title,
            facts=[
                cpu(first.cpu).title,
                f"{first.cpu}, {processors(first)}, kernel {group.kernel}, interrupts off",
                "Indented: the difference to another loop, and its cause",
            ],
            grid=table.grid(*_blocks(table, cells, footnotes)),
            sentences=[
                f"Published: {document.source}.",
                "Instructions are a count, not time: this clock shows neither the memory bandwidth of a load nor the "
                "prediction of a branch. Both flavours of a marker are three instructions.",
            ],
            footnotes=footnotes.all(),
            proofs=proof_lists(group.cells, _row_name),
        )

    def findings(self, groups: Sequence[CellGroup]) -> Iterator[Highlight]:
        (group,) = groups
        yield from overhead_findings(group.cells, _row_name, group.place(group.first.table))
        document, cells = marker_benchmarks(), _by_row(group)
        for conclusion in reversed(document.conclusions):
            more = _difference(cells, conclusion.row, conclusion.minus)
            if more is not None:
                measured = f"{figure(more, group.first.unit)} {unit_name(group.first.unit)}"
                documented = f"{published_figure(conclusion.published)} {document.unit}"
                yield Highlight(
                    Rank.PUBLISHED, f"To {conclusion.what} takes {measured} a loop; published: {documented}."
                )
                return

    def charts(self, groups: Sequence[CellGroup]) -> Mapping[str, Chart]:
        charts = {name: _chart(groups[0], name, title) for name, title in marker_benchmarks().groups.items()}
        return {f"markers-{name}": chart for name, chart in charts.items() if chart is not None}


REPORT = MarkersReport()
