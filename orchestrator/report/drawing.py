# SPDX-License-Identifier: GPL-2.0-only
"""Draw charts and intervals with matplotlib. Imported only when a chart is drawn."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, ScalarFormatter

from orchestrator.report.chart import (
    INK,
    LINE,
    MEASURED,
    PUBLISHED,
    QUIET_INK,
    STROKES,
    TONES,
    Bar,
    Chart,
    CurveChart,
    IntervalChart,
    Series,
)


def draw_intervals(chart: IntervalChart, axis: Axes) -> None:
    """Draw a row per figure, a point with its interval and text, and a line at 0."""
    axis.axvline(0, color=INK, linewidth=0.8)
    for place, row in enumerate(chart.rows):
        _, high = row.bounds or (row.value, row.value)
        colour = TONES[row.tone]
        error = None if row.bounds is None else _lengths(row.value, row.bounds)
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


_DPI = 100
_HEIGHT = 5.0  # inches
_WIDTH = 10.0  # 1000 pixels
_SUBTITLE_WIDTH = 110  # characters
_INCHES_PER_LABEL = 0.6
_INCHES_PER_ROW = 0.25
_HEAD_AND_AXIS = 1.2  # inches
_BELOW_TITLE = 0.325  # inches
_UNDATED = {"Date": None, "Creator": None}


def save(chart: Chart, folder: Path, name: str) -> list[Path]:
    """Draw ``chart`` into ``folder/name.png`` and ``folder/name.svg``, and return these paths.

    It needs no display, and ignores the user's settings of matplotlib.
    """
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with _own_style():
        drawn = _drawn(chart)
        drawn.savefig(paths[0], dpi=_DPI, metadata={"Software": None})
        drawn.savefig(paths[1], metadata=_UNDATED)
    return paths


def svg_text(chart: Chart) -> str:
    """Draw ``chart`` as SVG with text as text, not as paths."""
    content = io.StringIO()
    with _own_style():
        mpl.rc("svg", fonttype="none")
        _drawn(chart).savefig(content, format="svg", metadata=_UNDATED)
    return content.getvalue()


@contextmanager
def _own_style() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rc("axes.spines", top=False, right=False)
        mpl.rc("text", parse_math=False)
        mpl.rc("svg", hashsalt="orchestrator")  # equal charts, equal files
        yield


def _drawn(chart: Chart) -> Figure:
    if isinstance(chart, IntervalChart):
        figure = _titled(chart, _WIDTH, _HEAD_AND_AXIS + len(chart.rows) * _INCHES_PER_ROW)
        draw_intervals(chart, figure.subplots())
        return figure
    if isinstance(chart, CurveChart):
        return _curves(chart)
    figure = _titled(chart, max(_WIDTH, 1 + len(chart.panes) * len(chart.labels) * _INCHES_PER_LABEL))
    axes = figure.subplots(1, len(chart.panes), squeeze=False)[0]
    for index, (axis, (unit, series)) in enumerate(zip(axes, chart.panes, strict=True)):
        _pane(axis, unit, chart.labels, series, PUBLISHED if index else MEASURED)
    return figure


def _titled(chart: Chart, width: float, height: float = _HEIGHT) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    lines = textwrap.wrap(chart.subtitle, _SUBTITLE_WIDTH)
    # The title's empty lines leave room for the subtitle.
    figure.suptitle(chart.title + "\n" * len(lines), fontsize=13, fontweight="bold")
    figure.text(0.5, 1 - _BELOW_TITLE / height, "\n".join(lines), ha="center", va="top", fontsize=9, color=QUIET_INK)
    return figure


def _curves(chart: CurveChart) -> Figure:
    figure = _titled(chart, _WIDTH)
    axes = figure.subplots(1, len(chart.panes), squeeze=False)[0]
    for axis, pane in zip(axes, chart.panes, strict=True):
        for curve, (colour, style) in zip(pane.curves, cycle(STROKES), strict=False):
            axis.plot(*zip(*curve.points, strict=True), style, color=colour, marker="o", markersize=4, label=curve.name)
        if pane.logarithmic:
            axis.set_xscale("log")
            axis.set_yscale("log")
            for scale in (axis.xaxis, axis.yaxis):
                scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                scale.set_minor_formatter(NullFormatter())
        else:
            axis.set_xlim(left=0)
            axis.set_ylim(bottom=0)
        axis.set_xlabel(pane.across, fontsize=9)
        axis.set_title(pane.upwards, loc="left", fontsize=10)
        axis.grid(color=LINE, linewidth=0.6)
        if pane.curves:
            axis.legend(frameon=False, fontsize=8)
    return figure


def _pane(axis: Axes, unit: str, labels: Sequence[str], series: Sequence[Series], colours: Sequence[str]) -> None:
    width = 0.8 / len(series)
    size = 9 if len(series) == 1 else 8
    for number, bars_of_colour in enumerate(series):
        places = [index + (number - (len(series) - 1) / 2) * width for index in range(len(labels))]
        heights = [0.0 if bar.value is None else bar.value for bar in bars_of_colour.bars]
        axis.bar(places, heights, width, color=colours[number % len(colours)], label=bars_of_colour.name)
        for place, bar in zip(places, bars_of_colour.bars, strict=True):
            _text(axis, place, bar, size)
    axis.set_xticks(range(len(labels)), labels, fontsize=size)
    axis.tick_params(axis="x", length=0)
    axis.set_title(unit, loc="left", fontsize=10)
    axis.margins(y=0.12)
    # Bars start at zero, even if one of them points down.
    axis.spines["bottom"].set_visible(False)
    axis.axhline(0, color=INK, linewidth=0.8, clip_on=False)
    if len(series) > 1:
        axis.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.99), ncols=len(series), borderaxespad=0)


def _lengths(value: float, bounds: tuple[float, float]) -> list[list[float]]:
    """The distances of a figure to the ends of its interval, at least 0: a median may lie outside."""
    return [[max(value - bounds[0], 0.0)], [max(bounds[1] - value, 0.0)]]


def _text(axis: Axes, place: float, bar: Bar, size: int) -> None:
    """Write the bar's text at its end, clear of its interval."""
    value = bar.value or 0.0
    low, high = bar.bounds or (value, value)
    if bar.bounds:
        axis.errorbar(place, value, _lengths(value, bar.bounds), color=QUIET_INK, capsize=3, linewidth=1)
    down = value < 0
    axis.annotate(
        bar.text,
        (place, min(value, low) if down else max(value, high)),
        xytext=(0, -3 if down else 3),
        textcoords="offset points",
        ha="center",
        va="top" if down else "bottom",
        fontsize=size,
    )
