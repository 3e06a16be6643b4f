# SPDX-License-Identifier: GPL-2.0-only
"""What a bar chart shows, whatever draws it."""

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
class Panes:
    """A chart: panes side by side, each an axis with its unit and the series on it, over the same ``labels``."""

    title: str
    subtitle: str
    labels: Sequence[str]
    panes: Sequence[tuple[str, Sequence[Series]]]
