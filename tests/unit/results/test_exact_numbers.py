# SPDX-License-Identifier: GPL-2.0-only
"""Is the edge of a budget where its text has it, for counts as floats have them?"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from record_builders import cell

from orchestrator.comparison.comparison import CellChange, compare, pairs_by_id
from orchestrator.results.budgets import Budgets
from orchestrator.results.exact import decimal_text, exact, increase

MOST = 4_000_000
NUMBERS = [1, 2, 3, 5, 7, 100, 300, 1000, 4096, 10_000]


def counts_of(*numbers: int) -> st.SearchStrategy[Fraction]:
    """Counts by one of so many calls."""
    return st.sampled_from(numbers).flatmap(
        lambda calls: st.builds(Fraction, st.integers(1, MOST * calls - 1), st.just(calls))
    )


COUNTS = counts_of(*NUMBERS)
PAIRS = st.sampled_from([(calls, more) for calls in NUMBERS for more in NUMBERS if lcm(calls, more) <= 10_000]).flatmap(
    lambda pair: st.tuples(*(counts_of(calls) for calls in pair))
)
PERCENT = st.builds(Fraction, st.integers(1, 99_999), st.sampled_from([1, 10, 100, 1000]))


@st.composite
def increases(draw: st.DrawFn) -> tuple[Fraction, Fraction]:
    """A count and a percentage, by which it becomes a count by at most 10,000 calls."""
    calls, percent = draw(st.sampled_from(NUMBERS)), draw(PERCENT)
    growth = (1 + percent / 100) / calls
    later_calls = draw(st.sampled_from([number for number in range(1, 10_001) if growth.denominator % number == 0]))
    step = growth.denominator // later_calls
    return Fraction(step * draw(st.integers(1, int((MOST - 1) / (step * growth)))), calls), percent


def judged(before: dict[str, float], after: dict[str, float], **budget: str) -> CellChange:
    cells = [[cell("kprobe", samples=[values["value"]] * 4, **values)] for values in (before, after)]
    (change,) = compare(pairs_by_id(*cells), Budgets.of({"*": budget}), *cells).cells
    return change


@given(COUNTS)
def test_a_float_stands_for_the_count_that_it_was_made_from(count: Fraction) -> None:
    assert exact(float(count)) == count


@given(PAIRS)
@example((Fraction("885.1"), Fraction("670.2")))
def test_the_difference_of_two_floats_is_that_of_the_counts(counts: tuple[Fraction, Fraction]) -> None:
    count, baseline = counts
    assert exact(float(count) - float(baseline)) == count - baseline
    assert increase(float(baseline), float(count)) == float(count - baseline)


@given(st.decimals(0, 10**9, places=6).map(Fraction), st.booleans())
def test_a_decimal_is_written_as_it_is(number: Fraction, negative: bool) -> None:
    number = -number if negative else number
    assert Fraction(decimal_text(number)) == number


@pytest.mark.parametrize("figure", ["value", "overhead"])
@given(increase_of_count=increases())
@example(increase_of_count=(Fraction(1375), Fraction("5.6")))
@example(increase_of_count=(Fraction(1000), Fraction("0.1")))
@example(increase_of_count=(Fraction(1, 3), Fraction("152.33")))
def test_an_increase_of_a_budget_s_percentage_is_within_it(
    figure: str, increase_of_count: tuple[Fraction, Fraction]
) -> None:
    before, percent = increase_of_count
    after = before * (100 + percent) / 100
    values = [{"value": 5_000_000.0, "overhead": 1.0, figure: float(count)} for count in (before, after)]
    budget = {figure: f"+{decimal_text(percent)}%"}
    assert judged(values[0], values[1], **budget).exceeded == ()
    # One instruction in all calls more exceeds it.
    more = {**values[1], figure: float(after + Fraction(1, 1000))}
    assert len(judged(values[0], more, **budget).exceeded) == 1


@given(plain=counts_of(1, 2, 3, 5, 7, 100, 300, 1000), overhead=counts_of(1, 10, 100, 1000))
@example(plain=Fraction("670.2"), overhead=Fraction("214.9"))
def test_an_overhead_at_its_limit_is_within_it(plain: Fraction, overhead: Fraction) -> None:
    """The overhead as a run computes it, in floats."""
    subtracted = float(plain + overhead) - float(plain)
    values = {"value": 5_000_000.0, "overhead": subtracted}
    assert judged(values, values, overhead=f"<={decimal_text(overhead)}").exceeded == ()
    below = overhead - Fraction(1, 10_000)
    assert len(judged(values, values, overhead=f"<={decimal_text(below)}").exceeded) == 1
