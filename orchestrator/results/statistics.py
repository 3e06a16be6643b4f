# SPDX-License-Identifier: GPL-2.0-only
"""Which figures follow from the samples."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def mean(samples: Sequence[float]) -> float:
    """Return the arithmetic mean, in the samples' unit, correctly rounded.

    Equal samples give exactly that sample, which a sum in floating point does not promise: an exact clock's
    value has to be the count itself. Raises ``ValueError`` for no samples.
    """
    if not samples:
        raise ValueError("no samples, no mean")
    return float(statistics.mean(samples))


def median(samples: Sequence[float]) -> float:
    """Return the middle sample, or the mean of the two middle ones. Raises ``ValueError`` for no samples."""
    if not samples:
        raise ValueError("no samples, no median")
    return float(statistics.median(samples))


def ratio(value: float, base: float) -> float | None:
    """Return how many times ``base`` fits into ``value``; None where ``base`` is not positive.

    Published tables hold overheads below zero (a probed kernel that came out faster): a ratio to such a
    figure says nothing.
    """
    return value / base if base > 0 else None
