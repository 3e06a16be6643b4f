# SPDX-License-Identifier: GPL-2.0-only
"""The growth of a figure with a number: the exponent of its power law."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

_FEWEST = 5
_NORMAL_95 = 1.959964
"""The standard normal distribution's 97.5 % point."""


@dataclass(frozen=True)
class Growth:
    """y is proportional to x to the power of ``exponent``; ``interval`` its 95 % interval, None of too few points."""

    exponent: float
    interval: tuple[float, float] | None


def growth(points: Sequence[tuple[float, float]]) -> Growth | None:
    """Fit a power law to points (x, y), all above zero; None for fewer than two different x.

    The median of the slopes between all pairs of logarithms, which is robust against outliers, and its interval
    (P. K. Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", JASA 63, 1968), for points whose
    errors are independent; those of running sums are not. Equal values of x, and of y, make it narrower, as in
    ``scipy.stats.theilslopes``. With fewer than five points even the range of all slopes covers the exponent with less
    than 95 %.
    """
    logs = sorted((math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0)
    slopes = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(logs, 2) if x2 > x1)
    if not slopes:
        return None
    count = len(logs)
    if count < _FEWEST:
        return Growth(statistics.median(slopes), None)
    variance = (_pairs_weight(count) - sum(_tied(values) for values in zip(*logs, strict=True))) / 18
    reach = _NORMAL_95 * math.sqrt(variance)
    low = max(0, round((len(slopes) - reach) / 2) - 1)
    high = min(len(slopes) - 1, round((len(slopes) + reach) / 2))
    return Growth(statistics.median(slopes), (slopes[low], slopes[high]))


def _tied(values: Sequence[float]) -> int:
    """What equal values take off the variance of Kendall's statistic, times 18."""
    return sum(_pairs_weight(count) for count in Counter(values).values())


def _pairs_weight(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)
