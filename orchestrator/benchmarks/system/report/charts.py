# SPDX-License-Identifier: GPL-2.0-only
"""A whole-system workload as a bar chart: what instrumentation adds to it, beside what was published."""

from __future__ import annotations

import textwrap

from orchestrator.benchmarks.system.report.comparison import (
    is_baseline,
    parameter,
    percent,
    published_row,
    published_table,
    row_title,
)
from orchestrator.report.chart import Bar, BarChart, Series
from orchestrator.report.panel import Panel
from orchestrator.report.wording import processors
from orchestrator.results.contract import CellRecord

_LABEL_WIDTH = 14
_DIGITS = 3


def system_chart(panel: Panel) -> BarChart | None:
    """Return the differences in per cent of the baseline, with the smallest resolvable one; None without a bar."""
    cells = [cell for cell in panel.cells if not is_baseline(panel, cell)]
    if not cells:
        return None
    first, table = panel.first, published_table(panel.cells)
    panes = [("added to a run, per cent", [Series("", [_bar(cell) for cell in cells])])]
    if table is not None and table.unit == "percent":
        rows = [published_row(table, cell) for cell in cells]
        published = [Bar(None, "") if row is None else Bar(row.overhead, f"{row.bound} {row.overhead}") for row in rows]
        panes.append(("published, per cent", [Series("published", published)]))
    return BarChart(
        title=table.title if table else first.benchmark,
        subtitle=f"{first.benchmark} on {first.cpu}, {processors(first)}, {panel.kernel}, in {first.unit}",
        labels=["\n".join(textwrap.wrap(row_title(panel, cell), _LABEL_WIDTH)) for cell in cells],
        panes=panes,
    )


def _bar(cell: CellRecord) -> Bar:
    value = percent(cell, cell.overhead)
    if value is None:
        return Bar(None, cell.status if cell.status != "ok" else "no baseline")
    text = f"{value:+.{_DIGITS}f}"
    smallest = percent(cell, parameter(cell, "resolvable"))
    bounds = None if smallest is None else (value - smallest, value + smallest)
    return Bar(value, f"{text}\nno verdict" if cell.verdict == "none" else text, bounds)
