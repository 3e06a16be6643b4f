# SPDX-License-Identifier: GPL-2.0-only
"""What a chart of curves shows, whatever draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
    """A chart: panes side by side."""

    title: str
    subtitle: str
    panes: Sequence[CurvePane]
