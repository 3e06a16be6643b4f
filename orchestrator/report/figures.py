# SPDX-License-Identifier: GPL-2.0-only
"""The format of figures: the precision of the clock, and units as the documents spell them."""

from __future__ import annotations

from orchestrator.results.statistics import ratio

NOTHING = "-"
UNDECIDED = "none"
"""Printed in place of a ratio where the host's drift hides the effect."""
BELOW_ZERO = "(< 0)"
"""Printed in place of a ratio to a published overhead below zero."""
COUNTED = "instructions"
"""The unit of exact figures."""

_AS_IN_THE_DOCUMENTS = {"ns": "nsec"}


def number(value: float) -> str:
    """Return a measured figure: whole numbers whole, others with up to four decimals.

    Four are enough for a count divided by up to 10 000 calls. A figure that only rounds to a whole number keeps its
    zeros, so that it does not look exact.
    """
    if value.is_integer():
        return str(int(value))
    text = f"{value:.4f}"
    return text if text.endswith(".0000") else text.rstrip("0")


def figure(value: float | None, unit: str) -> str:
    """Return a measured figure in ``unit``: exact if it was counted, to a tenth if a clock was read."""
    if value is None:
        return NOTHING
    if unit == COUNTED or value.is_integer():
        return number(value)
    tenths = f"{value:.1f}"
    return "0.0" if tenths == "-0.0" else tenths


def signed_figure(change: float, unit: str) -> str:
    """Return a change in ``unit``, with its sign."""
    text = figure(change, unit)
    return f"+{text}" if change > 0 else text


def published_figure(value: float | None) -> str:
    """Return a figure as it was published."""
    return NOTHING if value is None else number(value)


def ratio_figure(value: float | None, base: float | None) -> str:
    """Return the ratio of ``value`` to ``base``, to two decimals; a dash where it is meaningless."""
    if value is None or base is None:
        return NOTHING
    times = ratio(value, base)
    return NOTHING if times is None else f"{times:.2f}"


def unit_name(unit: str) -> str:
    """Return a unit as the documents spell it."""
    return _AS_IN_THE_DOCUMENTS.get(unit, unit)
