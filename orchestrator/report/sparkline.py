# SPDX-License-Identifier: GPL-2.0-only
"""A series of figures as one line of characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from orchestrator.results.statistics import median

BLOCKS = "▁▂▃▄▅▆▇█!"
ASCII = "_.-~=+*#!"
"""Levels from low to high, and last the character of what has no figure."""


def sparkline(values: Sequence[float | None], width: int, characters: str = BLOCKS) -> str:
    """The values in their order, in at most ``width`` characters, from the lowest to the highest.

    Where there are more values than characters, each stands for the median of as many; what has no figure is seen
    where none of a character's values has one. Equal values are in the middle.
    """
    columns = min(len(values), width)
    cuts = [len(values) * column // columns for column in range(columns + 1)] if columns else [0]
    parts = [values[start:end] for start, end in pairwise(cuts)]
    figures = [[value for value in part if value is not None] for part in parts]
    heights = [median(part) if part else None for part in figures]
    known = [height for height in heights if height is not None]
    if not known:
        return characters[-1] * columns
    levels, nothing = characters[:-1], characters[-1]
    low, span = min(known), max(known) - min(known)
    highest = len(levels) - 1

    def level(height: float) -> str:
        return levels[round((height - low) / span * highest) if span else len(levels) // 2]

    return "".join(nothing if height is None else level(height) for height in heights)
