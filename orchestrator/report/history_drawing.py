# SPDX-License-Identifier: GPL-2.0-only
"""A history drawn with matplotlib. Imported only when a chart is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import ScalarFormatter

from orchestrator.report.chart import HistoryChart
from orchestrator.report.palette import LINE, MEASURED, STEP

_MANY = 100  # points from which on they are drawn small
_LABELLED = 12
"""Steps with their change in text: the newest. The labels of more would cover each other."""


def draw_history(chart: HistoryChart, axis: Axes) -> None:
    """Draw the runs as points, the levels as lines, each step with its change, and runs without a number below."""
    _intervals(chart, axis)
    runs = [(_days(point.when), point.value) for point in chart.points]
    known = _ends_of_equals([(when, value) for when, value in runs if value is not None])
    if known:
        size = 1.5 if len(known) > _MANY else 4
        axis.plot(*zip(*known, strict=True), "o", color=MEASURED[1], markersize=size, label="runs", clip_on=False)
    for level in chart.levels:
        axis.hlines(level.value, _days(level.first), _days(level.last), color=MEASURED[0], linewidth=1.8)
    _steps(chart, axis)
    axis.margins(x=0.02, y=0.12)
    failed = [when for when, value in runs if value is None]
    if failed:
        # At the axis, wherever the figures are.
        below = axis.get_xaxis_transform()
        axis.plot(
            failed, [0.0] * len(failed), "x", color=STEP, transform=below, clip_on=False, label="without a number"
        )
        axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.06), ncols=2, borderaxespad=0)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    # Counts of a thousand and one are written as such, not as an offset.
    axis.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    axis.set_title(chart.upwards, loc="left", fontsize=10)
    axis.grid(color=LINE, linewidth=0.6)
    axis.set_axisbelow(True)


def _ends_of_equals(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """The first and the last of neighbours that are equal: the line between has the others, and a file is small."""
    groups = [list(group) for _, group in groupby(points, lambda point: point[1])]
    return [point for group in groups for point in dict.fromkeys((group[0], group[-1]))]


def _intervals(chart: HistoryChart, axis: Axes) -> None:
    """A band for each row of neighbours that have an interval: nothing is drawn across a run that has none."""
    for has_bounds, group in groupby(chart.points, lambda point: point.bounds is not None):
        if has_bounds:
            ends = [(_days(point.when), *point.bounds) for point in group if point.bounds is not None]
            when, low, high = zip(*ends, strict=True)
            axis.fill_between(when, low, high, color=MEASURED[1], alpha=0.25, linewidth=0)


def _steps(chart: HistoryChart, axis: Axes) -> None:
    """A line through the whole height, with the change above the axis, where no point covers it."""
    unlabelled = len(chart.levels) - 1 - _LABELLED
    for at, level in enumerate(chart.levels[1:]):
        place = _days(level.first)
        axis.axvline(place, color=STEP, linewidth=1.0, linestyle="--")
        if at >= unlabelled:
            axis.annotate(
                level.change,
                (place, 1.0),
                xycoords=axis.get_xaxis_transform(),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=9,
                color=STEP,
            )


def _days(when: datetime) -> float:
    """A moment as matplotlib counts: in days since 1970-01-01, UTC."""
    return when.timestamp() / 86400
