# SPDX-License-Identifier: GPL-2.0-only
"""Figures from samples, on data with a known answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.results.statistics import mean, median, median_interval, ratio, spread_without_extremes

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


def test_a_ratio_needs_a_positive_base() -> None:
    assert ratio(3.0, 2.0) == 1.5
    assert ratio(3.0, 0.0) is None
    assert ratio(3.0, -1.0) is None
