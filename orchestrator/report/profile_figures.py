# SPDX-License-Identifier: GPL-2.0-only
"""The figures of profiles and of differences, as their tables and pictures print them."""

from __future__ import annotations

from fractions import Fraction

from orchestrator.report.figures import NOTHING, number


def per_call(value: Fraction | None) -> str:
    """Instructions per call; a dash for none."""
    return NOTHING if value is None else number(float(value))


def signed(value: Fraction) -> str:
    """A change, with its sign."""
    return f"+{per_call(value)}" if value > 0 else per_call(value)


def share(part: Fraction | int, whole: Fraction | int) -> str:
    """A part of the whole in percent; a dash where there is nothing."""
    return f"{100 * float(part) / float(whole):.1f} %" if whole else NOTHING


def mark(before: object | None, after: object | None) -> str:
    """What is said of something that only one side has."""
    return "new" if before is None else "gone" if after is None else ""


def others(count: int) -> str:
    """The label of the row that stands for the rest."""
    return "1 other" if count == 1 else f"{count} others"
