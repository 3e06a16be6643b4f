# SPDX-License-Identifier: GPL-2.0-only
"""Statistics of two groups of scattering samples.

scipy is imported late: it takes half a second, and exact counts do without.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import accumulate
from types import ModuleType

from orchestrator.errors import HostError
from orchestrator.results.statistics import Interval

SIGNIFICANCE = 0.05


_RESAMPLES = 2000
"""B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, 14.3: for intervals at least 1000."""


_SEED = 2005
"""Fixed, so that equal samples give equal intervals."""


def difference_interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the difference of the medians by the BCa bootstrap, else by the percentile bootstrap.

    BCa has none if the jackknife's medians are all equal. Raises ValueError for fewer than two samples in one,
    HostError without scipy.
    """
    if min(len(before), len(after)) < 2:
        raise ValueError("an interval needs at least two samples")
    numpy, stats = _libraries()
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings(), numpy.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # the second method handles degenerate data
            interval = stats.bootstrap(
                [before, after],
                lambda first, second, axis: numpy.median(second, axis=axis) - numpy.median(first, axis=axis),
                n_resamples=_RESAMPLES,
                confidence_level=1 - SIGNIFICANCE,
                method=method,
                vectorized=True,
                rng=numpy.random.default_rng(_SEED),
            ).confidence_interval
        low, high = float(interval.low), float(interval.high)
        if math.isfinite(low) and math.isfinite(high):
            return low, high
    raise ValueError("the samples are not finite")


def superiority(before: Sequence[float], after: Sequence[float]) -> float:
    """The probability that a sample after is larger than one before, counting half of the ties.

    A. Vargha and H. D. Delaney, "A Critique and Improvement of the CL Common Language Effect Size Statistics of McGraw
    and Wong", JEBS 25, 2000: U of Mann and Whitney divided by the number of pairs.
    """
    larger = sum((later > earlier) + (later == earlier) / 2 for earlier in before for later in after)
    return larger / (len(before) * len(after))


def can_resolve(before: int, after: int, significance: float = SIGNIFICANCE) -> bool:
    """Whether the Mann-Whitney test of so many samples can have a p-value as small as ``significance``.

    All arrangements of the samples are equally likely without a difference, and two of them are the extreme ones, so
    no p is below 2 / C(n + m, n) (H. B. Mann and D. R. Whitney, Annals of Mathematical Statistics 18, 1947). For 5 %
    that takes four samples of each.
    """
    return before > 0 and after > 0 and 2 / math.comb(before + after, before) <= significance


def mann_whitney(before: Sequence[float], after: Sequence[float]) -> float | None:
    """The two-sided p-value of the Mann-Whitney test; None if so few samples cannot reach 5 %.

    scipy computes it exactly without ties if one group has at most eight samples.
    """
    if not can_resolve(len(before), len(after)):
        return None
    return float(_libraries()[1].mannwhitneyu(after, before, alternative="two-sided").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for multiple tests, in the same order; each is significant below 5 %.

    S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979.
    scipy 1.17 has no correction of the family-wise error.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    scaled = (min(1.0, (len(p_values) - rank) * p_values[index]) for rank, index in enumerate(order))
    corrected = dict(zip(order, accumulate(scaled, max), strict=True))
    return [corrected[index] for index in range(len(p_values))]


def repeats_to_resolve(difference: float, interval: Interval, samples: int) -> int | None:
    """The approximate number of samples per group for an interval as wide as the difference; None without one.

    The width of an interval falls with the square root of the number of samples.
    """
    width = interval[1] - interval[0]
    return math.ceil(samples * (width / abs(difference)) ** 2) if difference and width else None


def _libraries() -> tuple[ModuleType, ModuleType]:
    try:
        import numpy
        from scipy import stats
    except ImportError:
        raise HostError(
            "comparing times of the wall clock needs scipy, which is not installed",
            hint="pip install 'probe-lab[statistics]'",
        ) from None
    return numpy, stats
