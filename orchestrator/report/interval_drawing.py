# SPDX-License-Identifier: GPL-2.0-only
"""Intervals drawn with matplotlib. Imported only when a chart is drawn."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

from orchestrator.report.chart import IntervalChart
from orchestrator.report.palette import INK, LINE, TONES


def draw_intervals(chart: IntervalChart, axis: Axes) -> None:
    """Draw a row for each figure: a point with its interval, its text behind it, and a line at 0."""
    axis.axvline(0, color=INK, linewidth=0.8)
    for place, row in enumerate(chart.rows):
        low, high = row.bounds or (row.value, row.value)
        colour = TONES[row.tone]
        # The median of the samples may lie outside an interval that was computed from other figures.
        lengths = [[max(row.value - low, 0.0)], [max(high - row.value, 0.0)]]
        error = None if row.bounds is None else lengths
        axis.errorbar(row.value, place, xerr=error, fmt="o", color=colour, capsize=3, linewidth=1.5, markersize=5)
        axis.annotate(
            row.text,
            (max(high, row.value), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.set_yticks(range(len(chart.rows)), [row.label for row in chart.rows], fontsize=8)
    axis.set_ylim(len(chart.rows) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.margins(x=0.12)
    axis.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    axis.set_xlabel(chart.across, fontsize=9)
    axis.grid(axis="x", color=LINE, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines["left"].set_visible(False)
