# SPDX-License-Identifier: GPL-2.0-only
"""The markers document's microbenchmarks as bar charts, one for each group of loops."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from orchestrator.benchmarks.markers.report.layout import cells_by_row, difference
from orchestrator.benchmarks.markers.rows import MarkerRow, marker_benchmarks
from orchestrator.report.chart import Bar, BarChart, Series
from orchestrator.report.figures import figure, published_figure, unit_name
from orchestrator.report.panel import Panel
from orchestrator.report.wording import processors
from orchestrator.results.contract import CellRecord

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
    published = [_published(row.published) for row in rows.values()]
    return _chart(panel, (title, "cost of a loop"), list(rows.values()), measured, published)


def _added(panel: Panel, title: str, rows: Mapping[str, MarkerRow]) -> BarChart | None:
    """The cost of each loop less that of the loop it is compared with."""
    cells = cells_by_row(panel)
    compared = [(name, row, row.minus) for name, row in rows.items() if row.minus]
    measured = [_bar(cells[name], difference(cells, name, minus.row)) for name, _, minus in compared]
    published = [_published(minus.published) for _, _, minus in compared]
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


def _published(value: float | None) -> Bar:
    return Bar(value, "" if value is None else published_figure(value))
