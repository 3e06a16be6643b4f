# SPDX-License-Identifier: GPL-2.0-only
"""The markers document's microbenchmarks as bar charts, one for each group of loops."""

from __future__ import annotations

import textwrap

from orchestrator.benchmarks.markers.report.layout import cells_by_row, difference
from orchestrator.benchmarks.markers.rows import MarkerRow, marker_benchmarks
from orchestrator.report.bars import Bar, Panes, Series
from orchestrator.report.figures import figure, published_figure, unit_name
from orchestrator.report.panels import Panel
from orchestrator.report.wording import processors
from orchestrator.results.contract import CellRecord

_LABEL_WIDTHS = {True: 10, False: 16}
"""Where labels are folded, with many bars and with few."""
_MANY = 5
_ADDED = ("empty", "memcpy")
"""Groups whose loops differ by little: what a marker adds is drawn, not what a loop takes."""


def marker_charts(panel: Panel) -> dict[str, Panes]:
    """Return a chart for each group that has something measured, by the name of its file."""
    cells = cells_by_row(panel)
    found = {}
    for group, title in marker_benchmarks().groups.items():
        rows = {
            name: row
            for name, row in marker_benchmarks().rows.items()
            if row.group == group and name in cells and (group not in _ADDED or row.minus)
        }
        if rows:
            found[f"markers-{group}"] = _panes(panel, title, rows, cells, added=group in _ADDED)
    return found


def _panes(panel: Panel, title: str, rows: dict[str, MarkerRow], cells: dict[str, CellRecord], *, added: bool) -> Panes:
    first = panel.first
    measured = [_measured(name, row, cells, added=added) for name, row in rows.items()]
    told = [_told(row, added=added) for row in rows.values()]
    what = "what a marker adds to a loop" if added else "cost of a loop"
    panes = [(f"measured, {unit_name(first.unit)}", [Series("", measured)])]
    if any(bar.value is not None for bar in told):
        panes.append((f"published, {marker_benchmarks().unit}", [Series("published", told)]))
    return Panes(
        title=title,
        subtitle=f"{what}; measured on {first.cpu}, {processors(first)}, {panel.kernel}",
        labels=["\n".join(textwrap.wrap(row.title, _LABEL_WIDTHS[len(rows) >= _MANY])) for row in rows.values()],
        panes=panes,
    )


def _measured(name: str, row: MarkerRow, cells: dict[str, CellRecord], *, added: bool) -> Bar:
    cell = cells[name]
    if cell.value is None:
        return Bar(None, cell.status)
    value = difference(cells, name, row.minus.row) if added and row.minus else cell.value
    return Bar(None, "nothing to compare") if value is None else Bar(value, figure(value, cell.unit))


def _told(row: MarkerRow, *, added: bool) -> Bar:
    value = (row.minus.published if row.minus else None) if added else row.published
    return Bar(value, "" if value is None else published_figure(value))
