# SPDX-License-Identifier: GPL-2.0-only
"""The report of marked loops: in the order of the document of 2006."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.benchmarks.markers.rows import MarkerRow, marker_benchmarks, marker_row
from orchestrator.catalog.cpus import cpu
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.kind import Group, Panel, by_kernel, parameters, processors
from orchestrator.report.sheet import (
    NOTHING,
    Finding,
    Footnotes,
    Grid,
    Rank,
    Row,
    Sheet,
    figure,
    overhead_findings,
    proof_lists,
    published_figure,
    unit_name,
)
from orchestrator.results.contract import CellRecord

# The microbenchmarks of the markers document of 2006: each loop, and the differences that the document derives.


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


# The markers document's microbenchmarks as bar charts, one for each group of loops.

_LABEL_WIDTHS = {True: 10, False: 16}
"""The width at which labels are wrapped, with many bars and with few."""
_MANY = 5
_ADDED = ("empty", "memcpy")
"""Groups whose loops differ by little: the chart shows the cost that a marker adds, not a loop's whole cost."""


def marker_charts(panel: Panel) -> dict[str, BarChart]:
    """Return a chart for each group that has something measured, by the name of its file."""
    cells = cells_by_row(panel)
    found = {}
    for group, title in marker_benchmarks().groups.items():
        measured = {name: row for name, row in marker_benchmarks().rows.items() if row.group == group and name in cells}
        chart = _added(panel, title, measured) if group in _ADDED else _costs(panel, title, measured)
        if chart is not None:
            found[f"markers-{group}"] = chart
    return found


def _costs(panel: Panel, title: str, rows: Mapping[str, MarkerRow]) -> BarChart | None:
    """The cost of each loop."""
    cells = cells_by_row(panel)
    measured = [_bar(cells[name], cells[name].value) for name in rows]
    published = [_published_bar(row.published) for row in rows.values()]
    return _chart(panel, (title, "cost of a loop"), list(rows.values()), measured, published)


def _added(panel: Panel, title: str, rows: Mapping[str, MarkerRow]) -> BarChart | None:
    """The cost of each loop less that of the loop it is compared with."""
    cells = cells_by_row(panel)
    compared = [(name, row, row.minus) for name, row in rows.items() if row.minus]
    measured = [_bar(cells[name], difference(cells, name, minus.row)) for name, _, minus in compared]
    published = [_published_bar(minus.published) for _, _, minus in compared]
    return _chart(panel, (title, "what a marker adds to a loop"), [row for _, row, _ in compared], measured, published)


def _chart(
    panel: Panel, titles: tuple[str, str], rows: Sequence[MarkerRow], measured: Sequence[Bar], published: Sequence[Bar]
) -> BarChart | None:
    if not rows:
        return None
    first, (title, what) = panel.first, titles
    panes = [(f"measured, {unit_name(first.unit)}", [Series("", measured)])]
    if any(bar.value is not None for bar in published):
        panes.append((f"published, {marker_benchmarks().unit}", [Series("published", published)]))
    return BarChart(
        title=title,
        subtitle=f"{what}; measured on {first.cpu}, {processors(first)}, {panel.kernel}",
        labels=["\n".join(textwrap.wrap(row.title, _LABEL_WIDTHS[len(rows) >= _MANY])) for row in rows],
        panes=panes,
    )


def _bar(cell: CellRecord, value: float | None) -> Bar:
    if cell.value is None:
        return Bar(None, cell.status)
    return Bar(None, "nothing to compare") if value is None else Bar(value, figure(value, cell.unit))


def _published_bar(value: float | None) -> Bar:
    return Bar(value, "" if value is None else published_figure(value))


_BENCHMARK = "markers"
_APART = ("image", "channel")


class MarkersReport:
    """A table for each kernel."""

    def owns(self, benchmark: str) -> bool:
        """Whether it is the marked loops' benchmark."""
        return benchmark == _BENCHMARK

    def apart(self, cell: CellRecord) -> tuple[object, ...]:
        """Return the handler, and how the guest was reached."""
        return cell.handler, *parameters(cell, _APART)

    def panels(self, cells: Sequence[CellRecord]) -> Iterable[Panel]:
        """Return a panel for each kernel; loops that only another kernel has stand with the others."""
        return by_kernel(cells)

    def joins(self, panel: Panel, group: Group) -> bool:
        """Never."""
        del panel, group
        return False

    def sheet(self, group: Group) -> Sheet:
        """Return the group's only panel as the document's table."""
        (panel,) = group
        return markers_sheet(panel)

    def findings(self, group: Group) -> Iterable[Finding]:
        """Return the loop that costs most, and the document's last conclusion beside what it published."""
        (panel,) = group
        return marker_findings(panel)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return a chart for each group of loops."""
        (panel,) = group
        return marker_charts(panel)


REPORT = MarkersReport()
