# SPDX-License-Identifier: GPL-2.0-only
"""A metric's course as a small picture beside its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.report.site.metric_summary import HEIGHTS, NO_NUMBER

_WIDTH, _HEIGHT = 144, 20


@dataclass(frozen=True)
class Course:
    """What is drawn in ``width`` by ``height`` pixels: a line, and crosses at points without a number."""

    line: str
    crosses: str
    title: str
    width: int = _WIDTH
    height: int = _HEIGHT


def course_of(heights: str) -> Course:
    """The picture of a summary's course, which has one point at least."""
    across = _WIDTH / len(heights)
    changes = any(one != other for one, other in pairwise(heights.replace(NO_NUMBER, "")))
    gaps = ", with runs that have no number" if NO_NUMBER in heights else ""
    failed = [round((at + 0.5) * across, 1) for at, one in enumerate(heights) if one == NO_NUMBER]
    return Course(
        line="".join(_line(heights, across)),
        crosses="".join(f"M{place - 2:g} {_HEIGHT - 5}l4 4m0 -4l-4 4" for place in failed),
        title=f"Course: {'it changes' if changes else 'level'}{gaps}",
    )


def _line(heights: str, across: float) -> Iterator[str]:
    """A stair: a level that holds is a line of its length."""
    before = NO_NUMBER
    for at, one in enumerate(heights):
        if one != NO_NUMBER:
            height = _HEIGHT - 2 - (_HEIGHT - 4) * HEIGHTS.index(one) // (len(HEIGHTS) - 1)
            if before == NO_NUMBER:
                yield f"M{round(at * across, 1):g} {height}"
            elif before != one:
                yield f"V{height}"
            yield f"H{round((at + 1) * across, 1):g}"
        before = one
