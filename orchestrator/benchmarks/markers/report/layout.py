# SPDX-License-Identifier: GPL-2.0-only
"""The microbenchmarks of the markers document of 2006: each loop, and the differences that the document derives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.benchmarks.markers.rows import MarkerRow, marker_benchmarks, marker_row
from orchestrator.catalog.cpus import cpu
from orchestrator.report.evidence import proof_lists
from orchestrator.report.figures import NOTHING, figure, published_figure, unit_name
from orchestrator.report.findings import Finding, Rank, overhead_findings
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Panel
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import processors
from orchestrator.results.contract import CellRecord


def markers_sheet(panel: Panel) -> Sheet:
    """Return a panel of loops in the document's order."""
    document, first = marker_benchmarks(), panel.first
    cells = cells_by_row(panel)
    shown = [cell for cell in panel.cells if cells[row_name(cell)] is cell]
    footnotes = Footnotes(shown, row_name, lambda cell: _remark(panel, cell))
    return Sheet(
        title=document.title,
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}, kernel {panel.kernel}, interrupts off",
            "Indented: what a loop takes more than another one, and for what",
        ],
        grid=Grid(
            ["rounds", f"{unit_name(first.unit)} a loop", f"published {document.unit}"],
            list(_blocks(cells, footnotes)),
            together=3,
        ),
        sentences=[
            f"Published: {document.source}.",
            "Instructions are a count, not time: this clock does not show what a load takes of the memory's bandwidth, "
            "and not how a branch is predicted. Both flavours of a marker are three instructions to it.",
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists(panel.cells, row_name),
    )


def marker_findings(panel: Panel) -> Iterator[Finding]:
    """The loop that costs most, and the last of the document's conclusions that can be drawn."""
    yield from overhead_findings(panel.cells, row_name, panel.place(panel.first.table))
    document, cells = marker_benchmarks(), cells_by_row(panel)
    for one in reversed(document.conclusions):
        more = difference(cells, one.row, one.minus)
        if more is not None:
            measured = f"{figure(more, panel.first.unit)} {unit_name(panel.first.unit)}"
            documented = f"{published_figure(one.published)} {document.unit}"
            yield Finding(Rank.PUBLISHED, f"To {one.what} takes {measured} a loop; published: {documented}.")
            return


def _blocks(cells: Mapping[str, CellRecord], footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    document = marker_benchmarks()
    for group, title in document.groups.items():
        rows = [Row(title, ["", "", ""], style="bold")]
        for name, row in document.rows.items():
            if row.group == group and name in cells:
                rows += _rows(name, row, cells, footnotes)
        if len(rows) > 1:
            yield rows
    unknown = [_row(name, cell, None, footnotes) for name, cell in cells.items() if name not in document.rows]
    if unknown:
        yield [Row("Not in this version's catalogue", ["", "", ""], style="bold"), *unknown]
    conclusions = [
        Row(f"  {one.what}", ["", _difference(cells, one.row, one.minus), published_figure(one.published)])
        for one in document.conclusions
        if one.row in cells and one.minus in cells
    ]
    if conclusions:
        yield [Row("Conclusions", ["", "", ""], style="bold"), *conclusions]


def _rows(name: str, row: MarkerRow, cells: Mapping[str, CellRecord], footnotes: Footnotes) -> Iterator[Row]:
    yield _row(row.title, cells[name], row.published, footnotes)
    if row.minus is not None:
        difference = _difference(cells, name, row.minus.row)
        yield Row(f"  {row.minus.what}", ["", difference, _published(row.minus.published)])


def _row(title: str, cell: CellRecord, published: float | None, footnotes: Footnotes) -> Row:
    # "unsupported" is too wide for the column; the footnote has the reason.
    lacking = NOTHING if cell.status == "unsupported" else cell.status
    value = lacking if cell.value is None else figure(cell.value, cell.unit)
    rounds = str(cell.parameters.get("rounds", NOTHING))
    return Row(title, [rounds, value + footnotes.marks(cell), _published(published)])


def _remark(panel: Panel, cell: CellRecord) -> str | None:
    return f"measured on {cell.kernel}" if cell.status == "ok" and panel.elsewhere(cell) else None


def _published(value: float | None) -> str:
    return NOTHING if value is None else published_figure(value)


def _difference(cells: Mapping[str, CellRecord], name: str, minus: str) -> str:
    value = difference(cells, name, minus)
    return NOTHING if value is None else figure(value, cells[name].unit)


def difference(cells: Mapping[str, CellRecord], name: str, minus: str) -> float | None:
    """Return a row's cost less another's; None where one has no number, or they are of different kernels."""
    one, other = cells.get(name), cells.get(minus)
    if one is None or other is None or one.value is None or other.value is None or one.kernel != other.kernel:
        return None
    return one.value - other.value


def cells_by_row(panel: Panel) -> dict[str, CellRecord]:
    """Return a panel's cells by their rows' names; of two of one row, the one of the panel's own kernel."""
    return {row_name(cell): cell for cell in sorted(panel.cells, key=panel.elsewhere, reverse=True)}


def row_name(cell: CellRecord) -> str:
    """Return the catalogue's name of a cell's row, or the probe's name where the catalogue lacks the row."""
    row = marker_row(cell.probe)
    return next((name for name, known in marker_benchmarks().rows.items() if known is row), cell.probe)
