# SPDX-License-Identifier: GPL-2.0-only
"""The chart of a comparison: by how many percent each cell changed, with the interval of that."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.report.chart import IntervalChart, IntervalRow, Tone
from orchestrator.report.comparison_figures import CellNames, difference_figures
from orchestrator.results.comparison import CellChange, Change, Comparison
from orchestrator.results.verdicts import Difference

MOST_ROWS = 30
"""Cells of a chart: those that are listed first."""
_LONGEST = 60
_TONES: Mapping[Change, Tone] = {"dearer": "worse", "cheaper": "better"}


def comparison_chart(comparison: Comparison) -> IntervalChart | None:
    """Return the chart of the changed cells; None where none of them has a number on both sides."""
    names = CellNames(comparison)
    rows = [_row(one, one.value, names.of(one)) for one in comparison.changed if one.value is not None]
    drawable = [row for row in rows if row is not None]
    if not drawable:
        return None
    scatter = ", with its 95 % interval" if any(row.bounds for row in drawable) else ""
    more = f"; {len(drawable) - MOST_ROWS} more are in the table" if len(drawable) > MOST_ROWS else ""
    return IntervalChart(
        title="Changed cells",
        subtitle=f"change in percent of what was before{scatter}{more}",
        across="percent",
        rows=drawable[:MOST_ROWS],
    )


def _row(one: CellChange, found: Difference, name: str) -> IntervalRow | None:
    if found.relative is None:
        return None
    bounds = None
    if found.interval is not None and found.interval[0] != found.interval[1]:
        low, high = (100 * end / found.before for end in found.interval)
        bounds = low, high
    _, percent, _ = difference_figures(found, one.pair.first.unit)
    label = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 4]} ..."
    return IntervalRow(label, 100 * found.relative, percent, bounds, _TONES.get(one.change, "open"))
