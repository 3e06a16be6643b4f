# SPDX-License-Identifier: GPL-2.0-only
"""The content of charts, independent of the library that draws them; colours, and sparklines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from orchestrator.results.statistics import median

Tone = Literal["worse", "better", "open"]


@dataclass(frozen=True)
class Bar:
    """A bar with its ``text``; a ``value`` of None draws nothing. ``bounds`` are the ends of its interval."""

    value: float | None
    text: str
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Series:
    """Bars of one colour, one per label; ``name`` is for the legend."""

    name: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class BarChart:
    """Panes side by side, each with a unit and the series of its axis, over the same ``labels``."""

    title: str
    subtitle: str
    labels: Sequence[str]
    panes: Sequence[tuple[str, Sequence[Series]]]


@dataclass(frozen=True)
class Curve:
    """Points (x, y) in the order of x, joined by a line; ``name`` is for the legend."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class CurvePane:
    """Curves on two axes; with ``logarithmic`` axes a power law is a straight line."""

    across: str
    upwards: str
    curves: Sequence[Curve]
    logarithmic: bool = False


@dataclass(frozen=True)
class CurveChart:
    """Panes of curves side by side."""

    title: str
    subtitle: str
    panes: Sequence[CurvePane]


@dataclass(frozen=True)
class IntervalRow:
    """A figure with its ``text``; ``bounds`` are the ends of its interval, None without one."""

    label: str
    value: float
    text: str
    bounds: tuple[float, float] | None
    tone: Tone


@dataclass(frozen=True)
class IntervalChart:
    """Rows of figures on one axis ``across``."""

    title: str
    subtitle: str
    across: str
    rows: Sequence[IntervalRow]


Chart = BarChart | CurveChart | IntervalChart
"""The charts of runs and comparisons; ``report.html.pictures`` draws histories."""


# The colours of all pictures.
#
# Series have the colours of Okabe and Ito's palette (jfly.uni-koeln.de/color), which colour-blind readers can
# distinguish. In pages, ink, quiet ink, lines and paper follow the reader's theme (``report.html.pictures``); the other
# colours are legible on light and dark paper.

INK, QUIET_INK, LINE, PAPER = "#000000", "#444444", "#dddddd", "#ffffff"
"""Text and axes; subtitles and the bars of intervals; grids; the background."""

MEASURED = ("#0072b2", "#56b4e9")
PUBLISHED = ("#d55e00", "#e69f00")
"""Bars: blue is measured, orange is published."""

STROKES = (
    *(("#0072b2", "-"), ("#d55e00", "--"), ("#009e73", ":"), ("#cc79a7", "-.")),
    *(("#56b4e9", "--"), ("#e69f00", "-")),
)
"""Curves, with strokes that tell overlapping ones apart."""

STEP = "#d55e00"
"""A history's steps and failures."""

TONES = {"worse": "#d55e00", "better": "#009e73", "open": QUIET_INK}
"""A change: regressed, improved, undecided."""

USER, MODULE, KERNEL, GENERATED = "#9ec6e6", "#e79d7c", "#f3d98b", "#cfe3a8"
"""Boxes of a flame graph and a time line, light enough for ``BOX_INK`` in both themes."""

BOX_INK = "#111111"
"""Text on a coloured box, in both themes."""


_LEVELS = "▁▂▃▄▅▆▇█"
_MISSING = "!"
"""A missing figure."""
IN_ASCII = str.maketrans(f"{_LEVELS}─", "_.-~=+*#-")
"""Levels from low to high, and the rules of tables, as ASCII."""


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The values in their order as at most ``width`` characters, scaled from the lowest to the highest.

    With more values than characters, a character is the median of its values, or a missing figure if all are missing.
    Equal values are drawn in the middle.
    """
    columns = min(len(values), width)
    cuts = [len(values) * column // columns for column in range(columns + 1)] if columns else [0]
    parts = [values[start:end] for start, end in pairwise(cuts)]
    figures = [[value for value in part if value is not None] for part in parts]
    heights = [median(part) if part else None for part in figures]
    known = [height for height in heights if height is not None]
    if not known:
        return _MISSING * columns
    low, span = min(known), max(known) - min(known)
    highest = len(_LEVELS) - 1

    def level(height: float) -> str:
        return _LEVELS[round((height - low) / span * highest) if span else len(_LEVELS) // 2]

    return "".join(_MISSING if height is None else level(height) for height in heights)
