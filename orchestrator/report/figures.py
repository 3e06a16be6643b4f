# SPDX-License-Identifier: GPL-2.0-only
"""Figures as all tables and sentences write them: numbers with their units, changes, ratios and shares."""

from __future__ import annotations

NOTHING = "-"
UNDECIDED = "none"
"""Printed in place of a ratio if the host's drift hides the effect."""
BELOW_ZERO = "(< 0)"
"""Printed in place of a ratio to a published overhead below zero."""
COUNTED = "instructions"
"""The unit of exact figures."""


def number(value: float) -> str:
    """A measured figure: whole, or with up to four decimals, which is enough for a count divided by 10 000 calls.

    A figure that only rounds to a whole number keeps its zeros, so that it does not look exact.
    """
    if value.is_integer():
        return str(int(value))
    text = f"{value:.4f}"
    return text if text.endswith(".0000") else text.rstrip("0")


def figure(value: float | None, unit: str) -> str:
    """A measured figure in ``unit``: exact if counted, to a tenth if timed."""
    if value is None:
        return NOTHING
    if unit == COUNTED or value.is_integer():
        return number(value)
    tenths = f"{value:.1f}"
    return "0.0" if tenths == "-0.0" else tenths


def signed_figure(change: float, unit: str) -> str:
    """A change in ``unit`` with its sign."""
    text = figure(change, unit)
    return f"+{text}" if change > 0 else text


def published_figure(value: float | None) -> str:
    """A published figure, or a dash."""
    return NOTHING if value is None else number(value)


def ratio_figure(value: float | None, base: float | None) -> str:
    """The ratio to two decimals; a dash unless ``base`` is positive, as some published overheads are not."""
    return NOTHING if value is None or base is None or base <= 0 else f"{value / base:.2f}"


def unit_name(unit: str) -> str:
    """A unit in the documents' spelling."""
    return "nsec" if unit == "ns" else unit


def clocked_unit(unit: str) -> str:
    """A unit with the clock that counts it: ``instructions``, or ``nsec of the wall clock``."""
    return unit if unit == COUNTED else f"{unit_name(unit)} of the wall clock"


def percent(share: float) -> str:
    """A share in percent, to three digits or whole."""
    value = 100 * share
    return f"{value:+.0f} %" if abs(value) >= 100 else f"{value:+.3g} %"
