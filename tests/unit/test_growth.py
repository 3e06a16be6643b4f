# SPDX-License-Identifier: GPL-2.0-only
"""Is a power law found where there is one, and not pulled away by a step out of line?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.results.growth import growth

XS = [100.0, 500.0, 1000.0, 2000.0, 5000.0, 20000.0]


@given(
    exponent=st.floats(-3, 3),
    factor=st.floats(1e-6, 1e6),
    xs=st.lists(st.integers(1, 100_000), min_size=2, max_size=20, unique=True),
)
def test_the_exponent_of_a_power_law_is_its_own(exponent: float, factor: float, xs: list[int]) -> None:
    found = growth([(float(x), factor * x**exponent) for x in xs])
    assert found is not None
    assert found.exponent == pytest.approx(exponent, abs=1e-6)
    if len(xs) > 2:
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


def test_the_interval_holds_the_exponent_between_the_slopes() -> None:
    found = growth([(1000.0, 1000.0), (5000.0, 5500.0), (20000.0, 19000.0)])
    assert found is not None
    assert found.interval is not None
    # Of three points it is from the smallest slope to the largest.
    assert found.interval == pytest.approx((0.8943, 1.0592), abs=1e-4)
    assert found.interval[0] <= found.exponent <= found.interval[1]


def test_two_points_have_a_slope_and_no_interval() -> None:
    found = growth([(10.0, 10.0), (1000.0, 1000.0)])
    assert found is not None
    assert found.exponent == pytest.approx(1.0)
    assert found.interval is None


@pytest.mark.parametrize("points", [[], [(1.0, 2.0)], [(5.0, 1.0), (5.0, 2.0)], [(1.0, 0.0), (2.0, -1.0)]])
def test_what_has_no_slope_has_no_growth(points: list[tuple[float, float]]) -> None:
    assert growth(points) is None
