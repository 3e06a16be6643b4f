# SPDX-License-Identifier: GPL-2.0-only
"""Does a difference count only where it is larger than what there is without any reason?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.results.statistics import Resolution

triples = st.lists(st.floats(1, 1e12), min_size=3, max_size=3)


def test_a_difference_above_the_baselines_own_counts() -> None:
    found = Resolution.of([1100.0, 1101.0, 1101.0], [1000.0, 1002.0, 1001.0], [[1004.0, 1004.0, 1001.0]])
    assert (found.overhead, found.aa_difference, found.smallest) == (100.0, 3.0, 4.0)
    assert found.interval == (96.0, 104.0)
    assert found.why_undecided("instructions") is None


def test_a_smaller_difference_has_no_verdict() -> None:
    found = Resolution.of([1003.0] * 3, [1000.0] * 3, [[1004.0] * 3])
    assert found.why_undecided("ns") == (
        "no verdict: the difference of 3 ns does not exceed the smallest that can be resolved, 4"
    )


def test_the_scatter_within_a_boot_counts() -> None:
    assert Resolution.of([1000.0, 1050.0], [1000.0, 1000.0], [[1000.0, 1000.0]]).smallest == 25.0


def test_additional_work_of_every_first_run_is_no_scatter() -> None:
    found = Resolution.of([1170.0, 1100.0, 1100.0], [1070.0, 1000.0, 1001.0], [[1071.0, 1000.0, 1000.0]])
    assert (found.overhead, found.smallest) == (99.0, 1.0)


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


@pytest.mark.parametrize(
    "distribution",
    [stats.norm(), stats.t(3), stats.expon(), stats.uniform()],
    ids=["normal", "t", "exponential", "uniform"],
)
def test_equal_work_is_called_different_in_one_case_of_twenty(distribution: Any) -> None:
    """Whatever the scatter is: three runs each of a cell, its baseline and an A/A boot that do the same."""
    cases = 4000
    draws = distribution.rvs(size=(cases, 3, 3), random_state=2006) + 1000
    found = [Resolution.of(list(one), list(two), [list(three)]) for one, two, three in draws]
    wrong = sum(one.why_undecided("ns") is None for one in found)
    assert 0.03 < wrong / cases < 0.07
