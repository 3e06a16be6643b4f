# SPDX-License-Identifier: GPL-2.0-only
"""The content of a chart, independent of the library that draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Bar:
    """A bar with its ``text``; ``value`` None: nothing to draw. ``bounds`` are the ends of its interval."""

    value: float | None
    text: str
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Series:
    """Bars of one colour, one for each label; ``name`` goes into the legend."""

    name: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class BarChart:
    """Panes side by side, each an axis with its unit and the series on it, over the same ``labels``."""

    title: str
    subtitle: str
    labels: Sequence[str]
    panes: Sequence[tuple[str, Sequence[Series]]]


@dataclass(frozen=True)
class Curve:
    """Points (x, y) in the order of x, joined by a line; ``name`` goes into the legend."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class CurvePane:
    """An axis with its curves; with ``logarithmic`` both ways, so that a power law is a straight line."""

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
class HistoryPoint:
    """A run that began at ``when``; ``value`` None: it has no number. ``bounds`` are the ends of its interval."""

    when: datetime
    value: float | None
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Level:
    """The figure that holds from the run that began at ``first`` to the one at ``last``.

    ``change`` is the text of the step to it; empty at the first.
    """

    first: datetime
    last: datetime
    value: float
    change: str = ""


@dataclass(frozen=True)
class HistoryChart:
    """What something has cost from run to run, oldest first, with its levels between steps."""

    title: str
    subtitle: str
    upwards: str
    points: Sequence[HistoryPoint]
    levels: Sequence[Level]


Chart = BarChart | CurveChart
"""What a run is drawn as; ``report.html.history_picture`` draws histories."""
