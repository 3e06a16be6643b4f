# SPDX-License-Identifier: GPL-2.0-only
"""Exact arithmetic for judging: a budget's edge is compared with a count, not with what floats make of both."""

from __future__ import annotations

from fractions import Fraction

_LARGEST_DENOMINATOR = 10_000
"""For counts per call or hit: a sample is a count of some hundred calls, rarely of several thousand."""
_ROUNDING = 1e-9
"""The error of subtracting floats, such as an overhead from values of up to 4,000,000 instructions."""


def exact(number: float) -> Fraction:
    """The count by a call that a float stands for; of another number the decimal that it is stored as.

    >>> exact(885.1 - 670.2), exact(1 / 3), exact(2.718281828)
    (Fraction(2149, 10), Fraction(1, 3), Fraction(679570457, 250000000))
    """
    count = Fraction(number).limit_denominator(_LARGEST_DENOMINATOR)
    if abs(count - Fraction(number)) <= max(_ROUNDING, abs(number) / 2**50):
        return count
    return Fraction(repr(number))


def increase(before: float, after: float) -> float:
    """The difference of two counts, without the rounding of a subtraction."""
    return float(exact(after) - exact(before))


def decimal_text(number: Fraction | int) -> str:
    """A number as a decimal, ``5.6``; one without an end is rounded to a float."""
    for decimals in range(21):
        scaled = number * 10**decimals
        if scaled.denominator == 1:
            digits = f"{abs(scaled.numerator):0{decimals + 1}d}"
            sign = "-" if number < 0 else ""
            return sign + (f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits)
    return repr(float(number))
