# SPDX-License-Identifier: GPL-2.0-only
"""Statistics of samples: centres, growth exponents, and the smallest difference that is significant."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations


def mean(samples: Sequence[float]) -> float:
    """The arithmetic mean, in the samples' unit, correctly rounded. Raises ``ValueError`` for no samples.

    The mean of equal samples is exactly that sample, which a floating-point sum does not guarantee.
    """
    return float(statistics.mean(samples))


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two middle ones. Raises ``ValueError`` for no samples."""
    return float(statistics.median(samples))


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """A confidence interval of the median, in the samples' unit, for any distribution.

    The narrowest pair of order statistics, equally far from both ends, that covers the median with at least
    ``confidence`` (W. J. Conover, "Practical Nonparametric Statistics", 3rd ed., 3.2: it is between the k-th smallest
    and k-th largest of n with probability 1 - 2 * P(B(n, 1/2) < k)). With too few samples for that confidence (under
    six for 95 %), the smallest and the largest. Raises ``ValueError`` for no samples.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if not count:
        raise ValueError("no samples, no interval")
    below = 0.0  # P(B(count, 1/2) <= cut)
    cut = 0
    while cut < (count - 1) // 2:
        below += math.comb(count, cut) / 2**count
        if 1 - 2 * (below + math.comb(count, cut + 1) / 2**count) < confidence:
            break
        cut += 1
    return ordered[cut], ordered[count - 1 - cut]


def spread_without_extremes(samples: Sequence[float]) -> float:
    """The distance between the second smallest and the second largest sample, to ignore an outlier on either side.

    Of fewer than four samples, the distance between the outermost. Raises ``ValueError`` for no samples.
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples, no spread")
    inner = ordered[1:-1] if len(ordered) >= 4 else ordered
    return inner[-1] - inner[0]


_FEWEST = 5
_NORMAL_95 = 1.959964
"""The standard normal distribution's 97.5 % point."""


@dataclass(frozen=True)
class Growth:
    """y is proportional to x ** ``exponent``; ``interval`` is its 95 % interval, None for too few points."""

    exponent: float
    interval: tuple[float, float] | None


def growth(points: Sequence[tuple[float, float]]) -> Growth | None:
    """Fit a power law to points (x, y), all above zero; None for fewer than two different x.

    The exponent is the median of the slopes between all pairs of logarithms, which is robust against outliers, with
    the interval of P. K. Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", JASA 63, 1968. The
    errors of the points must be independent; those of running sums are not. Ties make the interval narrower, as in
    ``scipy.stats.theilslopes``. Even the range of all slopes of fewer than five points covers less than 95 %.
    """
    logs = sorted((math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0)
    slopes = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(logs, 2) if x2 > x1)
    if not slopes:
        return None
    count = len(logs)
    if count < _FEWEST:
        return Growth(statistics.median(slopes), None)
    # The variance of Kendall's statistic, reduced by ties.
    tied = sum(_pairs_weight(equal) for values in zip(*logs, strict=True) for equal in Counter(values).values())
    variance = (_pairs_weight(count) - tied) / 18
    reach = _NORMAL_95 * math.sqrt(variance)
    low = max(0, round((len(slopes) - reach) / 2) - 1)
    high = min(len(slopes) - 1, round((len(slopes) + reach) / 2))
    return Growth(statistics.median(slopes), (slopes[low], slopes[high]))


def _pairs_weight(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)


Interval = tuple[float, float]

FEWEST_RUNS = 3
"""Runs per boot: a fourth difference of the same scatter exceeds the largest of three in about one case of twenty."""


@dataclass(frozen=True)
class Resolution:
    """The difference to a baseline, and the smallest significant one, from boots of the same work (A/A).

    ``runs`` is the number of samples, ``overhead`` the difference of the medians, ``smallest`` the difference that it
    must exceed, ``aa_difference`` the largest difference of an A/A boot's median to the baseline's. The last three are
    in the samples' unit, None without a baseline.
    """

    runs: int
    overhead: float | None
    smallest: float | None
    aa_difference: float | None

    @classmethod
    def of(
        cls, samples: Sequence[float], baseline: Sequence[float], repetitions: Sequence[Sequence[float]]
    ) -> Resolution:
        """Compare samples with those of the baseline and of its repetitions, both of which may be missing.

        All have the same number of runs, which are compared in order, since the first run of a boot does extra work.
        ``smallest`` is the largest difference between a run of the baseline and the same run of a repetition, or
        between a run's difference and the overhead. Raises ValueError without samples, or for unequal numbers of them.
        """
        if not baseline:
            return cls(len(samples), None, None, None)
        centre = median(baseline)
        overhead = median(samples) - centre
        if not repetitions:
            return cls(len(samples), overhead, None, None)
        aa_difference = max(abs(median(group) - centre) for group in repetitions)
        between = (
            abs(run - baseline_run) for group in repetitions for run, baseline_run in zip(group, baseline, strict=True)
        )
        scatter = (abs(run - baseline_run - overhead) for run, baseline_run in zip(samples, baseline, strict=True))
        return cls(len(samples), overhead, max(aa_difference, *between, *scatter), aa_difference)

    @property
    def interval(self) -> Interval | None:
        """The interval of the difference; None if its scatter is unknown."""
        if self.overhead is None or self.smallest is None:
            return None
        return self.overhead - self.smallest, self.overhead + self.smallest

    def why_undecided(self, unit: str) -> str | None:
        """Why the difference allows no verdict, or None."""
        if self.runs < FEWEST_RUNS:
            return f"no verdict: the scatter of fewer than {FEWEST_RUNS} runs is unknown"
        if self.overhead is None:
            return "no verdict: the baseline has no number"
        if self.smallest is None:
            return "no verdict: without an A/A boot of the baseline the smallest significant difference is unknown"
        if abs(self.overhead) <= self.smallest:
            return (
                f"no verdict: the difference of {self.overhead:.0f} {unit} does not exceed the resolution, "
                f"{self.smallest:.0f}"
            )
        return None
