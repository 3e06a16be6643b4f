# SPDX-License-Identifier: GPL-2.0-only
"""Where the level of a noisy series changes: a penalised fit of steps, by the library ruptures.

PELT (R. Killick, P. Fearnhead, I. Eckley, "Optimal detection of changepoints with a linear computational cost", JASA
107, 2012) minimises the squared deviations from the segments' means plus a penalty for each step. The input is in
units of the noise, so that the penalty has no unit:

- **Noise** is estimated from differences, which a step changes in one place only: their median absolute deviation
  (1.4826 of it is the standard deviation of normal noise) divided by the square root of 2.
- **Outliers**, more than ``_FAR`` deviations from a running median, are replaced by it: a slow run is not a step.
- **Autocorrelation**, such as that of a host's slow drift, makes means scatter more than independent points do, by
  (1 + r) / (1 - r) in their variance. r comes from the medians of the differences over two points and over one (S.
  Chakar, E. Lebarbier, C. Levy-Leduc, S. Robin, "A robust approach for estimating change-points in the mean of an
  AR(1) process", Bernoulli 23, 2017).
- **Drift** that an autocorrelation of neighbours does not show, such as a trend, is fitted by stairs. A step changes
  the level at once, and more than it changes elsewhere: the means of up to ``_AROUND`` points before and after it
  differ by ``_ABRUPT`` times what they typically (1.4826 medians) do around places that are no part of the step.
- **The penalty** bounds false steps. Of noise alone, a step at a given place reduces the squared deviations by a
  chi-square variable of one degree of freedom, and there are n places (Bonferroni): with the quantile 1 - ``_FALSE``
  / n, a series without steps gets one with a probability of at most ``_FALSE``, as far as noise is normal and known.
  docs/history.md has how often other noise gets one, and how many steps are found; of a random walk below the noise
  7.0 % of the series get one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, mean, median

from orchestrator.errors import HostError

FEWEST_POINTS = 12
"""Shorter series are not fitted: the noise of two segments of five is not known well enough."""
SHORTEST_SEGMENT = 5
"""Points on either side of a step. A step shows once so many points have followed."""

_FALSE = 0.001
_FAR = 3.0
_WINDOW = 7
_NORMAL = 1.4826
_STRONGEST = 0.9
_TRIM = 2.5
_AROUND = 8
_ABRUPT = 3.5


def steps_of_times(values: Sequence[float]) -> Sequence[int]:
    """The indices of the first value after each step, in order; none in a series shorter than ``FEWEST_POINTS``.

    Raises HostError if the library is not installed.
    """
    if len(values) < FEWEST_POINTS:
        return []
    noise = noise_of(values)
    if not noise:
        return []
    # At the ends the window is shifted, not cut: two outliers would be half of a cut window.
    starts = [min(max(0, at - _WINDOW // 2), len(values) - _WINDOW) for at in range(len(values))]
    centres = [median(values[start : start + _WINDOW]) for start in starts]
    pairs = zip(values, centres, strict=True)
    cleaned = [value if abs(value - centre) <= _FAR * noise else centre for value, centre in pairs]
    width = _width(cleaned)
    changes = _changes(cleaned, width)
    if not _has_abrupt_place(changes, width):
        return []
    try:
        # Imported late: it takes half a second of CPU.
        import numpy
        from ruptures import KernelCPD
    except ImportError as error:
        hint = "install it: pip install 'probe-lab[statistics]' (up to Python 3.13); exact counts need no library"
        raise HostError("steps in a history of times need the library ruptures", hint=hint) from error
    # How many times larger autocorrelation makes the variance of a mean.
    by_one, by_two = _mean_square_difference(values, 1), _mean_square_difference(values, 2)
    correlation = min(max(by_two / by_one - 1, 0.0), _STRONGEST) if by_one else 0.0
    scale = noise * math.sqrt((1 + correlation) / (1 - correlation))
    series = numpy.array(cleaned) / scale
    penalty = NormalDist().inv_cdf(1 - _FALSE / (2 * len(values))) ** 2
    # The linear kernel's cost is the sum of squared deviations from the mean.
    fit = KernelCPD(kernel="linear", min_size=SHORTEST_SEGMENT).fit(series.reshape(-1, 1))
    return [int(place) for place in fit.predict(pen=penalty)[:-1] if _is_abrupt(changes, int(place), width)]


def noise_of(values: Sequence[float]) -> float:
    """The standard deviation of a series around its level, in its unit, without steps and outliers; 0 if constant."""
    differences = [after - before for before, after in pairwise(values)]
    if not differences:
        return 0.0
    centre = median(differences)
    deviations = [abs(difference - centre) for difference in differences]
    # With a coarse clock more than half are equal. Then use the mean, which is 0.798 standard deviations of a normal.
    deviation = _NORMAL * median(deviations) or sum(deviations) / len(deviations) / 0.798
    return deviation / math.sqrt(2)


def _mean_square_difference(values: Sequence[float], lag: int) -> float:
    """The mean over values ``lag`` places apart, without the squares due to outliers and large steps."""
    squares = [(after - before) ** 2 for before, after in zip(values, values[lag:], strict=False)]
    limit = (_TRIM * _NORMAL) ** 2 * median(squares)
    return mean(square for square in squares if square <= limit)


def _has_abrupt_place(changes: Sequence[float], width: int) -> bool:
    """Whether any place is abrupt; the fit is needed only then."""
    ordered = sorted(changes[width : len(changes) - width])
    # 2 * width - 1 changes around a place are left out. The median of those outside is least if those are the largest.
    outside = len(ordered) - 2 * width + 1
    if outside <= 0:
        return True
    least = _ABRUPT * _NORMAL * ordered[(outside - 1) // 2]
    places = range(SHORTEST_SEGMENT, len(changes) - SHORTEST_SEGMENT)
    return any(changes[place] >= least and _is_abrupt(changes, place, width) for place in places)


def _width(values: Sequence[float]) -> int:
    return max(SHORTEST_SEGMENT - 1, min(_AROUND, len(values) // 8))


def _is_abrupt(changes: Sequence[float], place: int, width: int) -> bool:
    places = range(width, len(changes) - width)
    elsewhere = [changes[other_place] for other_place in places if abs(other_place - place) >= width]
    return not elsewhere or changes[place] >= _ABRUPT * _NORMAL * median(elsewhere)


def _changes(values: Sequence[float], width: int) -> Sequence[float]:
    """By place, the difference of the means of up to ``width`` values before and after it; none at both ends."""
    count = len(values)
    before = [0.0, *(fmean(values[max(place - width, 0) : place]) for place in range(1, count + 1))]
    after = [*before[width:], *(fmean(values[place:]) for place in range(count - width + 1, count)), 0.0]
    return [0.0, *(abs(after[place] - before[place]) for place in range(1, count)), 0.0]
