# SPDX-License-Identifier: GPL-2.0-only
"""How two groups of samples that scatter differ: the size of the difference and its interval first, a p-value last.

From scipy, which is imported where it is used: that takes half a second, and exact counts need none of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from orchestrator.errors import HostError
from orchestrator.results.statistics import median, ratio

SIGNIFICANCE = 0.05
CONFIDENCE = 1 - SIGNIFICANCE

_RESAMPLES = 2000
"""B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, 14.3: for intervals at least 1000."""
_SEED = 2005
"""Fixed, so that the same samples always give the same interval."""


@dataclass(frozen=True)
class SampleDifference:
    """What the samples after have more than those before.

    ``difference`` (of the medians) and its ``interval`` are in the samples' unit; ``relative`` is to the median before,
    None where that is not positive. ``superiority`` is the probability that a sample after is larger than one before,
    with half of those that are equal: 0.5 where neither group tends to be larger. ``p`` is that of the Mann-Whitney
    test, two-sided; None where so few samples cannot come below 5 % (``can_resolve``).
    """

    difference: float
    relative: float | None
    interval: tuple[float, float]
    superiority: float
    p: float | None

    @property
    def cliffs_delta(self) -> float:
        """Cliff's delta: 1 where every sample after is larger, -1 where every one is smaller."""
        return 2 * self.superiority - 1

    @classmethod
    def of(cls, before: Sequence[float], after: Sequence[float]) -> SampleDifference:
        """Compare two groups. Raises ValueError for fewer than two samples in one, HostError without scipy."""
        interval = difference_interval(before, after)
        centre = median(before)
        difference = median(after) - centre
        return cls(
            difference,
            ratio(difference, centre),
            interval,
            superiority(before, after),
            mann_whitney(before, after),
        )


def median_bootstrap_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median by the BCa bootstrap, in the samples' unit. Raises as ``SampleDifference.of``."""
    numpy = _numpy()
    return _interval([samples], numpy.median)


def difference_interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the difference of the medians by the BCa bootstrap. Raises as ``SampleDifference.of``."""
    numpy = _numpy()

    def statistic(first: object, second: object, axis: int) -> object:
        return numpy.median(second, axis=axis) - numpy.median(first, axis=axis)

    return _interval([before, after], statistic)


def superiority(before: Sequence[float], after: Sequence[float]) -> float:
    """The probability that a sample after is larger than one before, with half of those that are equal.

    A. Vargha and H. D. Delaney, "A Critique and Improvement of the CL Common Language Effect Size Statistics of McGraw
    and Wong", JEBS 25, 2000: U of Mann and Whitney, to the number of pairs.
    """
    larger = sum((other > one) + (other == one) / 2 for one in before for other in after)
    return larger / (len(before) * len(after))


def can_resolve(before: int, after: int, significance: float = SIGNIFICANCE) -> bool:
    """Whether the Mann-Whitney test of so many samples can have a p-value as small as ``significance``.

    All arrangements of the samples are equally likely without a difference, and two of them are the extreme ones, so
    no p is below 2 / C(n + m, n) (H. B. Mann and D. R. Whitney, Annals of Mathematical Statistics 18, 1947). For 5 %
    that takes four samples of each.
    """
    return before > 0 and after > 0 and 2 / math.comb(before + after, before) <= significance


def mann_whitney(before: Sequence[float], after: Sequence[float]) -> float | None:
    """The two-sided p-value of the Mann-Whitney test; None where so few samples cannot come below 5 %.

    It is exact where no samples are equal and one group has at most eight, as scipy chooses.
    """
    if not can_resolve(len(before), len(after)):
        return None
    return float(_stats().mannwhitneyu(after, before, alternative="two-sided").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for being several, in the same order: each is significant where it is below 5 %.

    S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979.
    scipy 1.17 has none for the family-wise error.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def repeats_to_resolve(found: SampleDifference, samples: int) -> int | None:
    """About how many samples of each group have an interval of half the difference; None without a difference.

    An interval's width falls with the square root of the number of samples.
    """
    width = found.interval[1] - found.interval[0]
    if not found.difference or not width:
        return None
    return math.ceil(samples * (width / abs(found.difference)) ** 2)


def _interval(groups: Sequence[Sequence[float]], statistic: object) -> tuple[float, float]:
    """The BCa interval; that of percentiles where BCa has none, because the jackknife's medians are all equal."""
    if any(len(samples) < 2 for samples in groups):
        raise ValueError("fewer than two samples have no interval")
    numpy, stats = _numpy(), _stats()
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings(), numpy.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # degenerate data are what the second method is for
            interval = stats.bootstrap(
                groups,
                statistic,
                n_resamples=_RESAMPLES,
                confidence_level=CONFIDENCE,
                method=method,
                vectorized=True,
                rng=numpy.random.default_rng(_SEED),
            ).confidence_interval
        low, high = float(interval.low), float(interval.high)
        if math.isfinite(low) and math.isfinite(high):
            return low, high
    raise ValueError("the samples have no interval: they are not finite")


def _numpy() -> ModuleType:
    _stats()
    import numpy

    return numpy


def _stats() -> ModuleType:
    try:
        from scipy import stats
    except ImportError:
        raise HostError(
            "times of the wall clock are compared with scipy, which is not installed",
            hint="pip install 'probe-lab[statistics]'",
        ) from None
    module: ModuleType = stats
    return module
