# SPDX-License-Identifier: GPL-2.0-only
"""Are budgets read as they are meant, and for the cells that they are meant for?"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell

from orchestrator.results.budgets import Allowance, Budget, BudgetError, Budgets, Limit


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
        assert budget == Budget(value=Allowance(amount, bool(percent)))


@pytest.mark.parametrize(("text", "amount"), [("<=300", 300), ("<= 2.5", Fraction(5, 2)), ("<=0", 0)])
def test_a_limit(text: str, amount: Fraction | int) -> None:
    ((_, budget),) = Budgets.of({"kprobe": text}).entries
    assert budget == Budget(value=Limit(amount))
    assert Limit(amount).of(10) == amount - 10


@pytest.mark.parametrize(
    ("bare", "sentence"),
    [
        (300, "found 300; write '<=300' to allow at most 300, or '+300' to allow an increase of 300"),
        ("0", "found '0'; write '<=0' to allow at most 0, or '+0' to allow an increase of 0"),
        (
            "1%",
            "found '1%'; write '<=N' to allow at most N in the cell's unit, or '+1%' to allow an increase of 1 %",
        ),
        ("1.5 %", "or '+1.5%' to allow an increase of 1.5 %"),
        ("<=5%", "found '<=5%'; a limit is in the cell's unit: <=5"),
        ("<5", "found '<5'; expected +N or +N% to allow such an increase, or <=N to allow at most N"),
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
    assert Allowance(Fraction(5, 2), percent=True).of(1000.0) == 25
    assert Allowance(Fraction(5, 2), percent=True).of(-1000.0) == 0
    assert Allowance(3, percent=False).of(1000.0) == 3


def test_the_last_that_matches_counts() -> None:
    budgets = Budgets.of({"*": "+1%", "probe=kprobe,cpu=pentium4": "+5", "jprobe": {"overhead": "+1%"}})
    assert budgets.of_cell(cell("none")) == Budget(value=Allowance(1, percent=True))
    assert budgets.of_cell(cell("kprobe")) == Budget(value=Allowance(5, percent=False))
    assert budgets.of_cell(cell("jprobe")) == Budget(overhead=Allowance(1, percent=True))
    assert budgets.of_cell(cell("kprobe", cpu="athlon")) == Budget(value=Allowance(1, percent=True))
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
ALLOWANCES = INCREASES | AMOUNTS.map(lambda amount: f"<={amount}")


@given(st.dictionaries(st.sampled_from(["kprobe", "cpu=*", "id=a/b"]), ALLOWANCES))
def test_their_plain_form_is_read_as_the_same(data: dict[str, str]) -> None:
    budgets = Budgets.of(data)
    assert Budgets.of(dict(budgets.plain())) == budgets
