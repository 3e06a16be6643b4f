# SPDX-License-Identifier: GPL-2.0-only
"""The content of a chart, independent of the library that draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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


Chart = BarChart | CurveChart
