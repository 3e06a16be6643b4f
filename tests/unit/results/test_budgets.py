# SPDX-License-Identifier: GPL-2.0-only
"""Are budgets read as they are meant, and for the cells that they are meant for?"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell

from orchestrator.results.budgets import Budget, BudgetError, Budgets, CellBudget


@pytest.mark.parametrize(
    ("text", "amount", "percent"),
    [("+5", 5, False), ("+0", 0, False), ("+2.5%", Fraction(5, 2), True),
     ("+0.123456789%", Fraction("0.123456789"), True), ("+ 3", None, None), ("+3 %", 3, True),
     ("-1", None, None), (-1, None, None), (True, None, None), ("", None, None),
     ("+1e9", None, None), ([], None, None), (None, None, None), ("nan", None, None), ("+5\n", None, None)],
)  # fmt: skip
def test_an_allowance(text: Any, amount: Fraction | int | None, percent: bool | None) -> None:
    if amount is None:
        with pytest.raises(BudgetError, match="expected \\+N"):
            Budgets.of({"kprobe": text})
    else:
        ((_, budget),) = Budgets.of({"kprobe": text}).entries
        assert budget == CellBudget(value=Budget(more=amount, percent=bool(percent)))


@pytest.mark.parametrize(("text", "amount"), [("<=300", 300), ("<= 2.5", Fraction(5, 2)), ("<=0", 0)])
def test_a_limit(text: str, amount: Fraction | int) -> None:
    ((_, budget),) = Budgets.of({"kprobe": text}).entries
    assert budget == CellBudget(value=Budget(limit=amount))
    assert Budget(limit=amount).increase(10) == amount - 10


@pytest.mark.parametrize(
    ("bare", "sentence"),
    [
        (300, "found 300; write '<=300' to allow at most 300, or '+300' to allow an increase of 300"),
        ("0", "found '0'; write '<=0' to allow at most 0, or '+0' to allow an increase of 0"),
        (
            "1%",
            "found '1%'; write '+1%' to allow an increase of 1 %, or '<=N' to allow at most N",
        ),
        ("1.5 %", "write '+1.5%' to allow an increase of 1.5 %"),
        ("<=5%", "found '<=5%'; a limit is in the figure's unit: <=5"),
        ("<5", "found '<5'; expected +N or +N% to allow such an increase, <=N to allow at most N"),
        ("=5", "expected"),
        (">=5", "expected"),
    ],
)
@pytest.mark.parametrize("figure", [None, "value", "overhead"])
def test_a_number_that_says_neither_is_refused(bare: Any, sentence: str, figure: str | None) -> None:
    with pytest.raises(BudgetError) as caught:
        Budgets.of({"kprobe": bare if figure is None else {figure: bare}})
    ((path, found),) = caught.value.problems
    assert path == (("kprobe",) if figure is None else ("kprobe", figure))
    assert sentence in found


def test_percent_are_of_the_figure_before() -> None:
    assert Budget(more=Fraction(5, 2), percent=True).increase(1000.0) == 25
    assert Budget(more=Fraction(5, 2), percent=True).increase(-1000.0) == 0
    assert Budget(more=3).increase(1000.0) == 3


def test_the_last_that_matches_counts() -> None:
    budgets = Budgets.of({"*": "+1%", "probe=kprobe,cpu=pentium4": "+5", "jprobe": {"overhead": "+1%"}})
    assert budgets.of_cell(cell("none")) == CellBudget(value=Budget(more=1, percent=True))
    assert budgets.of_cell(cell("kprobe")) == CellBudget(value=Budget(more=5))
    assert budgets.of_cell(cell("jprobe")) == CellBudget(overhead=Budget(more=1, percent=True))
    assert budgets.of_cell(cell("kprobe", cpu="athlon")) == CellBudget(value=Budget(more=1, percent=True))
    assert Budgets.of({"kprobe": "+1"}).of_cell(cell("none")) is None


@pytest.mark.parametrize(
    ("data", "path", "words"),
    [
        ([], (), "expected a mapping"),
        (None, (), "expected a mapping"),
        ({f"a{n}": 1 for n in range(1001)}, (), "at most 1000"),
        ({"prob=kprobe": 1}, ("prob=kprobe",), "did you mean 'probe'"),
        ({"kprobe,": 1}, ("kprobe,",), "expected PATTERN or KEY=PATTERN"),
        ({"kprobe": {}}, ("kprobe",), "expected \\+N"),
        ({"kprobe": {"vaule": 1}}, ("kprobe", "vaule"), "did you mean 'value'"),
        ({"kprobe": {"overhead": "1 ns"}}, ("kprobe", "overhead"), "found '1 ns'; expected \\+N"),
    ],
)
def test_errors_of_budgets_name_the_key(data: Any, path: tuple[str, ...], words: str) -> None:
    with pytest.raises(BudgetError, match=words) as caught:
        Budgets.of(data)
    assert [place for place, _ in caught.value.problems] == [path]


def test_all_problems_at_once() -> None:
    with pytest.raises(BudgetError) as caught:
        Budgets.of({"kprobe": "x", "jprobe": {"value": "y", "overhead": "+1"}, "cup=x": 1})
    assert len(caught.value.problems) == 3


AMOUNTS = st.one_of(st.integers(0, 10**12 - 1).map(str), st.decimals(0, 10**6, places=3).map(str))
INCREASES = st.builds(lambda amount, percent: f"+{amount}{percent}", AMOUNTS, st.sampled_from(["", "%"]))
COUNTED = st.builds("{} {}".format, AMOUNTS, INCREASES.filter(lambda text: text.strip("+%0.") != ""))
ALLOWANCES = INCREASES | COUNTED | AMOUNTS.map(lambda amount: f"<={amount}")


@given(st.dictionaries(st.sampled_from(["kprobe", "cpu=*", "id=a/b"]), ALLOWANCES))
def test_their_plain_form_is_read_as_the_same(data: dict[str, str]) -> None:
    budgets = Budgets.of(data)
    assert Budgets.of(dict(budgets.plain())) == budgets


@pytest.mark.parametrize(
    ("text", "most", "increase_over_400"),
    [("+5", None, 5), ("+2%", None, 8), ("<=300", 300, -100), ("422", 422, 22), ("422 +2%", Fraction("430.44"), 30.44),
     ("422 +8", 430, 30), ("0.5 +10%", Fraction("0.55"), None)],
)  # fmt: skip
def test_one_grammar_has_increases_limits_and_counts(text: str, most: Any, increase_over_400: float | None) -> None:
    budget = Budget.of(text)
    assert budget.most == most
    assert increase_over_400 is None or float(budget.increase(400.0)) == pytest.approx(increase_over_400)
    assert str(budget) == text


DECIMALS = st.decimals(0, 10**9, places=4).map(Fraction) | st.integers(0, 10**14).map(Fraction)
COUNTS = st.builds(Fraction, st.integers(0, 10**9), st.sampled_from([1, 3, 100, 700, 4096]))
ANY_BUDGET = (
    st.builds(Budget, more=DECIMALS, percent=st.booleans())
    | st.builds(Budget, limit=DECIMALS)
    | st.builds(Budget, counted=COUNTS)
    | st.builds(Budget, counted=COUNTS, more=DECIMALS.filter(bool), percent=st.booleans())
)


@given(ANY_BUDGET)
def test_a_printed_budget_is_read_as_the_same(budget: Budget) -> None:
    assert Budget.of(str(budget)) == budget


@given(ANY_BUDGET, st.integers(1, 1000), COUNTS)
def test_a_budget_of_many_hits_allows_as_many_times_as_much(budget: Budget, hits: int, before: Fraction) -> None:
    one, many = budget.increase(float(before)), budget.times(hits).increase(float(before * hits))
    assert float(many) == pytest.approx(float(one * hits), abs=1e-3, rel=1e-9)


def problem(text: str) -> str:
    try:
        Budget.of(text)
    except BudgetError as error:
        return str(error)
    return ""


@given(st.text(alphabet="0123456789+<=% .,e-", max_size=12))
def test_any_other_text_is_refused_with_the_grammar(text: str) -> None:
    sentence = problem(text)
    assert not sentence or "expected +N or +N%" in sentence or "write '+" in sentence
    assert bool(sentence) or Budget.of(str(Budget.of(text))) == Budget.of(text)
