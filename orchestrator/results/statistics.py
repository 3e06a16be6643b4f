# SPDX-License-Identifier: GPL-2.0-only
"""Statistics of samples."""

from __future__ import annotations

import math
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


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return an interval that holds the median of what was sampled, in the samples' unit.

    The narrowest pair of order statistics, equally far from both ends, that covers it with at least ``confidence``;
    nothing is assumed of the distribution (W. J. Conover, "Practical Nonparametric Statistics", 3rd ed., 3.2: between
    the k-th smallest and k-th largest of n with probability 1 - 2 * P(B(n, 1/2) < k)). Too few samples for that
    confidence (under six for 95 %) give smallest and largest. Raises ``ValueError`` for no samples.
    """
    if not samples:
        raise ValueError("no samples, no interval")
    ordered = sorted(samples)
    count = len(ordered)
    below = 0.0  # P(B(count, 1/2) <= cut)
    cut = 0
    while cut < (count - 1) // 2:
        below += math.comb(count, cut) / 2**count
        if 1 - 2 * (below + math.comb(count, cut + 1) / 2**count) < confidence:
            break
        cut += 1
    return ordered[cut], ordered[count - 1 - cut]


def spread_without_extremes(samples: Sequence[float]) -> float:
    """Return the distance between second smallest and second largest sample: one outlier on either side is no drift.

    Of fewer than four samples, the distance between the outermost. Raises ``ValueError`` for no samples.
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples, no spread")
    inner = ordered[1:-1] if len(ordered) >= 4 else ordered
    return inner[-1] - inner[0]


def ratio(value: float, base: float) -> float | None:
    """Return how many times ``base`` fits into ``value``; None where ``base`` is not positive.

    Published tables contain overheads below zero (a probed kernel that was faster): a ratio to such a figure is
    meaningless.
    """
    return value / base if base > 0 else None
