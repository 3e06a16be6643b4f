# SPDX-License-Identifier: GPL-2.0-only
"""Figures from samples, on data with a known answer."""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.comparison.two_samples import (
    can_resolve,
    difference_interval,
    holm,
    mann_whitney,
    repeats_to_resolve,
    superiority,
)
from orchestrator.errors import HostError
from orchestrator.results.statistics import (
    Resolution,
    growth,
    mean,
    median,
    median_interval,
    spread_without_extremes,
)

NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # From tables of the sign test at 5 %, two-sided: the largest k with P(B(n, 1/2) < k) <= 2.5 %.
    [(5, 1, 5), (6, 1, 6), (8, 1, 8), (9, 2, 8), (12, 3, 10), (15, 4, 12), (20, 6, 15), (25, 8, 18), (50, 18, 33)],
)
def test_ranks_of_the_medians_interval(count: int, low: int, high: int) -> None:
    assert median_interval([float(rank) for rank in range(count, 0, -1)]) == (low, high)


def test_the_interval_covers_the_median_with_its_confidence() -> None:
    source = random.Random(1)
    # Skewed on purpose: delays are.
    covered = 0
    for _ in range(2000):
        low, high = median_interval([source.expovariate(1.0) for _ in range(9)])
        covered += low <= 0.6931471805599453 <= high
    assert 0.945 <= covered / 2000 <= 0.98  # exactly 1 - 20/512 = 0.961


@given(NUMBERS)
def test_median_lies_in_its_interval(samples: list[float]) -> None:
    low, high = median_interval(samples)
    assert min(samples) <= low <= median(samples) <= high <= max(samples)


@given(NUMBERS)
def test_spread_ignores_one_hiccup(samples: list[float]) -> None:
    spread = spread_without_extremes(samples)
    assert 0 <= spread <= max(samples) - min(samples)
    if len(samples) >= 4:
        assert spread_without_extremes([*samples, 1e12]) <= max(samples) - min(samples)


def test_spread_of_four_is_that_of_the_inner_two() -> None:
    assert spread_without_extremes([100.0, 1.0, 3.0, 2.0]) == 1.0
    assert spread_without_extremes([1.0, 5.0]) == 4.0


@pytest.mark.parametrize("figure", [mean, median, median_interval, spread_without_extremes])
def test_no_samples_no_figure(figure: Callable[[Sequence[float]], object]) -> None:
    with pytest.raises(ValueError, match=r"no samples|data"):
        figure([])


def test_equal_samples_give_exactly_that_sample() -> None:
    assert mean([0.1] * 10) == 0.1


# Is a power law found where there is one, and not pulled away by a step out of line?

XS = [100.0, 500.0, 1000.0, 2000.0, 5000.0, 20000.0]


@given(
    exponent=st.floats(-3, 3),
    factor=st.floats(1e-6, 1e6),
    xs=st.lists(st.integers(1, 100_000), min_size=2, max_size=20, unique=True),
)
def test_the_exponent_of_an_exact_power_law_is_found(exponent: float, factor: float, xs: list[int]) -> None:
    found = growth([(float(x), factor * x**exponent) for x in xs])
    assert found is not None
    assert found.exponent == pytest.approx(exponent, abs=1e-6)
    if len(xs) >= 5:
        assert found.interval is not None
        assert found.interval == pytest.approx((exponent, exponent), abs=1e-6)


def test_one_step_out_of_line_does_not_pull_it_away() -> None:
    points = [(x, x**1.1) for x in XS]
    points[3] = (points[3][0], 10 * points[3][1])
    found = growth(points)
    assert found is not None
    assert found.exponent == pytest.approx(1.1, abs=1e-9)
    assert found.interval is not None
    assert found.interval[0] < 1.1 < found.interval[1]


@given(st.lists(st.floats(0.5, 2.0), min_size=5, max_size=12))
def test_mirrored_samples_have_the_mirrored_interval(errors: list[float]) -> None:
    points = [(float(number), number * error) for number, error in enumerate(errors, start=1)]
    found, mirrored = growth(points), growth([(x, 1 / y) for x, y in points])
    assert found is not None
    assert mirrored is not None
    assert found.interval is not None
    assert mirrored.interval is not None
    assert (-mirrored.interval[1], -mirrored.interval[0]) == pytest.approx(found.interval)
    assert found.interval[0] <= found.exponent <= found.interval[1]


def test_the_interval_covers_the_true_exponent_with_its_confidence() -> None:
    numbers = random.Random(2014)
    held = 0
    for _ in range(400):
        found = growth([(float(x), x**1.05 * math.exp(numbers.gauss(0, 0.02))) for x in range(1, 11)])
        assert found is not None
        assert found.interval is not None
        held += found.interval[0] <= 1.05 <= found.interval[1]
    assert 0.92 * 400 <= held <= 0.99 * 400


@pytest.mark.parametrize("count", [2, 3, 4])
def test_few_points_have_a_slope_and_no_interval(count: int) -> None:
    found = growth([(10.0**x, 10.0**x) for x in range(1, count + 1)])
    assert found is not None
    assert found.exponent == pytest.approx(1.0)
    assert found.interval is None


@pytest.mark.parametrize("points", [[], [(1.0, 2.0)], [(5.0, 1.0), (5.0, 2.0)], [(1.0, 0.0), (2.0, -1.0)]])
def test_points_without_a_slope_have_no_growth(points: list[tuple[float, float]]) -> None:
    assert growth(points) is None


# Does a difference count only where it is larger than what there is without any reason?

triples = st.lists(st.floats(1, 1e12), min_size=3, max_size=3)


def test_a_difference_above_the_baselines_own_counts() -> None:
    resolution = Resolution.of([1100.0, 1101.0, 1101.0], [1000.0, 1002.0, 1001.0], [[1004.0, 1004.0, 1001.0]])
    assert (resolution.overhead, resolution.aa_difference, resolution.smallest) == (100.0, 3.0, 4.0)
    assert resolution.interval == (96.0, 104.0)
    assert resolution.why_undecided("instructions") is None


def test_a_smaller_difference_has_no_verdict() -> None:
    resolution = Resolution.of([1003.0] * 3, [1000.0] * 3, [[1004.0] * 3])
    assert resolution.why_undecided("ns") == ("no verdict: the difference of 3 ns does not exceed the resolution, 4")


def test_the_scatter_within_a_boot_counts() -> None:
    assert Resolution.of([1000.0, 1050.0], [1000.0, 1000.0], [[1000.0, 1000.0]]).smallest == 25.0


def test_additional_work_of_every_first_run_is_no_scatter() -> None:
    resolution = Resolution.of([1170.0, 1100.0, 1100.0], [1070.0, 1000.0, 1001.0], [[1071.0, 1000.0, 1000.0]])
    assert (resolution.overhead, resolution.smallest) == (99.0, 1.0)


def test_there_is_no_verdict_without_a_baseline_or_its_repetition() -> None:
    assert "the baseline has no number" in str(Resolution.of([1.0] * 3, [], []).why_undecided("ns"))
    alone = Resolution.of([2.0] * 3, [1.0] * 3, [])
    assert (alone.overhead, alone.interval) == (1.0, None)
    assert "without an A/A boot" in str(alone.why_undecided("ns"))


def test_the_scatter_of_few_runs_is_unknown() -> None:
    assert "fewer than 3 runs" in str(Resolution.of([9.0, 9.0], [1.0, 1.0], [[1.0, 1.0]]).why_undecided("ns"))


@given(triples, st.lists(triples, min_size=1, max_size=3))
def test_a_repetition_of_the_baseline_is_never_a_difference(baseline: list[float], others: list[list[float]]) -> None:
    for group in others:
        assert Resolution.of(group, baseline, others).why_undecided("ns") is not None


@pytest.mark.parametrize(("distribution", "shape"), [("norm", ()), ("t", (3,)), ("expon", ()), ("uniform", ())])
def test_equal_work_is_called_different_in_one_case_of_twenty(distribution: str, shape: tuple[int, ...]) -> None:
    """Whatever the scatter is: three runs each of a cell, its baseline and an A/A boot that do the same."""
    from scipy import stats

    cases = 4000
    draws = getattr(stats, distribution)(*shape).rvs(size=(cases, 3, 3), random_state=2006) + 1000
    resolutions = [Resolution.of(list(one), list(two), [list(three)]) for one, two, three in draws]
    wrong = sum(resolution.why_undecided("ns") is None for resolution in resolutions)
    assert 0.03 < wrong / cases < 0.07


# Differences between groups of samples, on data with known answers.

MALES = [19.0, 22.0, 16.0, 29.0, 24.0]


FEMALES = [20.0, 11.0, 17.0, 12.0]
"""Ages at the diagnosis of diabetes: the example of scipy's own documentation, with U = 17 and p = 0.1111."""


GROUPS = st.lists(st.integers(-1000, 1000).map(float), min_size=2, max_size=12)


def enumerated_p(before: Sequence[float], after: Sequence[float]) -> float:
    """The exact two-sided p: the share of all divisions of the samples whose U is as far from the middle."""
    pooled, middle = [*before, *after], len(before) * len(after) / 2

    def distance(chosen: Sequence[int]) -> float:
        ones = [pooled[index] for index in chosen]
        others = [one for index, one in enumerate(pooled) if index not in chosen]
        return abs(sum(other > one for one in ones for other in others) - middle)

    own = distance(range(len(before)))
    divisions = list(combinations(range(len(pooled)), len(before)))
    return sum(distance(division) >= own for division in divisions) / len(divisions)


def test_the_published_example() -> None:
    assert superiority(FEMALES, MALES) == 17 / 20
    assert mann_whitney(FEMALES, MALES) == pytest.approx(0.1111, abs=5e-5)


@given(st.lists(st.integers(0, 10_000), min_size=8, max_size=10, unique=True))
def test_p_is_that_of_all_divisions_of_the_samples(samples: list[int]) -> None:
    before, after = [float(sample) for sample in samples[:4]], [float(sample) for sample in samples[4:]]
    assert mann_whitney(before, after) == pytest.approx(enumerated_p(before, after))


@pytest.mark.parametrize(
    ("before", "after", "possible"),
    # From tables of the test's critical values at 5 %, two-sided: the first n and m that have one.
    [(3, 3, False), (3, 4, False), (3, 5, True), (4, 4, True), (2, 7, False), (2, 8, True), (1, 38, False)],
)
def test_the_fewest_samples_that_can_be_significant(before: int, after: int, possible: bool) -> None:
    assert can_resolve(before, after) is can_resolve(after, before) is possible
    extreme = mann_whitney([float(n) for n in range(before)], [100.0 + n for n in range(after)])
    assert (extreme is not None) is possible
    if extreme is not None:
        assert extreme <= 0.05


@pytest.mark.parametrize(
    ("given_values", "corrected"),
    [
        # M. Aickin and H. Gensler, American Journal of Public Health 86, 1996, explain the procedure; these four are
        # multiplied by 4, 3, 2 and 1 from the smallest on, and none is smaller than the one before.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.5, 0.9], [1.0, 1.0]),
        ([0.02], [0.02]),
        ([], []),
    ],
)
def test_holm(given_values: list[float], corrected: list[float]) -> None:
    assert holm(given_values) == pytest.approx(corrected)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_rejects_what_its_procedure_rejects(values: list[float]) -> None:
    rejected = []
    for rank, index in enumerate(sorted(range(len(values)), key=lambda one: values[one])):
        if values[index] * (len(values) - rank) > 0.05:
            break
        rejected.append(index)
    assert {index for index, value in enumerate(holm(values)) if value <= 0.05} == set(rejected)


@given(GROUPS, GROUPS)
def test_a_difference_is_mirrored_with_its_groups(before: list[float], after: list[float]) -> None:
    assert superiority(before, after) == pytest.approx(1 - superiority(after, before))
    there, back = mann_whitney(before, after), mann_whitney(after, before)
    assert there == (pytest.approx(back) if back is not None else None)
    low, high = difference_interval(before, after)
    assert low <= high


@given(GROUPS, st.integers(-500, 500))
def test_a_constant_added_is_the_difference(samples: list[float], added: int) -> None:
    moved = difference_interval(samples, [sample + added for sample in samples])
    still = difference_interval(samples, samples)
    assert moved == pytest.approx((still[0] + added, still[1] + added))


@given(GROUPS)
def test_an_interval_lies_within_the_samples(samples: list[float]) -> None:
    low, high = difference_interval([0.0, 0.0], samples)
    assert min(samples) <= low <= high <= max(samples)


def test_equal_samples_differ_by_exactly_that() -> None:
    assert difference_interval([5.0] * 8, [7.0] * 8) == (2.0, 2.0)
    assert difference_interval([0.0, 0.0], [5.0] * 8) == (5.0, 5.0)


def test_the_interval_is_the_same_each_time() -> None:
    samples = [random.Random(3).expovariate(1) for _ in range(12)]
    assert difference_interval([0.0, 0.0], samples) == difference_interval([0.0, 0.0], samples)


def test_the_interval_of_a_difference_covers_it_with_its_confidence() -> None:
    source = random.Random(11)
    held = 0
    for _ in range(150):
        before = [100 + source.expovariate(0.2) for _ in range(15)]
        after = [108 + source.expovariate(0.2) for _ in range(15)]
        low, high = difference_interval(before, after)
        held += low <= 8 <= high
    # 95 %; three standard deviations of 150 draws are 5 %. Bootstrap intervals of a median are known to be wide.
    assert held / 150 >= 0.9


def own_bca(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """The BCa interval of the difference of medians, written down from Efron and Tibshirani, 14.3."""
    source, normal = random.Random(4), statistics.NormalDist()

    def difference(one: Sequence[float], other: Sequence[float]) -> float:
        return statistics.median(other) - statistics.median(one)

    observed = difference(before, after)
    drawn = sorted(
        difference(source.choices(before, k=len(before)), source.choices(after, k=len(after))) for _ in range(20_000)
    )
    below = sum((one < observed) + (one == observed) / 2 for one in drawn) / len(drawn)
    bias = normal.inv_cdf(below)
    without = [
        [difference([*before[:k], *before[k + 1 :]], after) for k in range(len(before))],
        [difference(before, [*after[:k], *after[k + 1 :]]) for k in range(len(after))],
    ]
    # Of two samples, the influences of each weighed by its size: Davison and Hinkley 1997, 5.3.2.
    influences = [(len(group) - 1) * (statistics.fmean(group) - one) / len(group) for group in without for one in group]
    spread = sum(influence**2 for influence in influences) ** 1.5
    acceleration = sum(influence**3 for influence in influences) / (6 * spread) if spread else 0.0

    def end(share: float) -> float:
        z = bias + normal.inv_cdf(share)
        return drawn[int(normal.cdf(bias + z / (1 - acceleration * z)) * (len(drawn) - 1))]

    return end(0.025), end(0.975)


@pytest.mark.parametrize("seed", range(3))
def test_the_interval_is_that_of_the_published_formula(seed: int) -> None:
    source = random.Random(seed)
    before = [100 + source.expovariate(0.1) for _ in range(13)]
    after = [110 + source.expovariate(0.1) for _ in range(11)]
    # Both draw: the ends are quantiles of resampled medians, with steps between them.
    assert difference_interval(before, after) == pytest.approx(own_bca(before, after), abs=2.5)


def test_the_bootstrap_agrees_with_order_statistics() -> None:
    samples = [math.log(rank + 1) for rank in range(60)]
    low, high = difference_interval([0.0, 0.0], samples)
    ordered = median_interval(samples)
    assert low == pytest.approx(ordered[0], abs=0.15)
    assert high == pytest.approx(ordered[1], abs=0.15)


@pytest.mark.parametrize("count", [6, 9, 12, 25, 60])
def test_our_interval_of_the_median_is_scipys(count: int) -> None:
    """Both are made of order statistics; scipy's need not be equally far from both ends."""
    from scipy import stats

    samples = [float(rank) for rank in range(count)]
    theirs = stats.quantile_test(samples, q=0, p=0.5).confidence_interval(0.95)
    ours = median_interval(samples)
    assert (ours[0], ours[1]) == (theirs.low, theirs.high)


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(0.01, 1e6)), min_size=5, max_size=25, unique_by=lambda p: p[0])
)
@example([(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 2.0)])
def test_our_growth_exponent_is_scipys_slope(points: list[tuple[int, float]]) -> None:
    from scipy import stats

    xs, ys = zip(*((math.log(x), math.log(y)) for x, y in points), strict=True)
    theirs = stats.theilslopes(ys, xs, alpha=0.95)
    ours = growth([(float(x), y) for x, y in points])
    assert ours is not None
    assert ours.interval is not None
    assert ours.exponent == pytest.approx(theirs.slope, abs=1e-9)
    assert ours.interval == pytest.approx((theirs.low_slope, theirs.high_slope), abs=1e-9)


def test_repeats_follow_from_the_scatter() -> None:
    # Sixteen wide for a difference of four: sixteen times as many samples make it four wide.
    assert repeats_to_resolve(4.0, (-4.0, 12.0), 6) == 96
    assert repeats_to_resolve(0.0, (-1.0, 1.0), 6) is None


@pytest.mark.parametrize(("before", "after"), [([], [1.0, 2.0]), ([1.0, 2.0], [1.0])])
def test_one_sample_has_no_interval(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match="an interval needs at least two samples"):
        difference_interval(before, after)


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(HostError, match="scipy") as caught:
        difference_interval([1.0, 2.0], [3.0, 4.0])
    assert caught.value.hint == "pip install 'probe-lab[statistics]'"


def test_a_median_is_pythons() -> None:
    assert median(FEMALES) == statistics.median(FEMALES) == 14.5
