# SPDX-License-Identifier: GPL-2.0-only
"""Is a power law found where there is one, and not pulled away by a step out of line?"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.results.statistics import growth

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
