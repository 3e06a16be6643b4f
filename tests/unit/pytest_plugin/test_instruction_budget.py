# SPDX-License-Identifier: GPL-2.0-only
"""Is a file of budgets read as it was written, and refused where it is none?"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.artifacts.cache import Cache
from orchestrator.errors import ConfigError
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.pytest_plugin.budget_file import BudgetFile, CommittedBudget
from orchestrator.pytest_plugin.grown_symbols import by_symbol, grown, largest, where_it_grew
from orchestrator.results.budgets import Budget

MACHINE = "debian-686 6.1.0-50-686, pentium4"


def counted(
    count: Fraction | int, percent: Fraction | int = 0, symbols: Mapping[str, float] | None = None
) -> CommittedBudget:
    return CommittedBudget(Budget(counted=count, more=percent, percent=bool(percent)), symbols)


@pytest.fixture
def file(tmp_path: Path) -> BudgetFile:
    """A file that is not there yet."""
    return BudgetFile(tmp_path / "test_it.py", Cache(tmp_path / "cache"))


@pytest.mark.parametrize(
    "budget",
    [
        counted(422),
        counted(Fraction(5, 4)),
        counted(Fraction(1, 3)),
        counted(1048, 2),
        counted(Fraction(21, 2), Fraction(1, 2)),
        counted(369, 0, {"callbench": 13.0, "f [mine]": 356.0}),
        counted(Fraction(3, 2), 2, {"f.isra.0": 1.5}),
        CommittedBudget(Budget(limit=300)),
        CommittedBudget(Budget(limit=Fraction(601, 2)), {"f": 1.0}),
    ],
)
def test_a_budget_is_read_as_it_was_written(file: BudgetFile, budget: CommittedBudget) -> None:
    assert file.find("test_one[a]", "call", MACHINE) is None
    file.write("test_one[a]", "call", "another", counted(1))
    file.write("test_one[a]", "call", MACHINE, budget)
    file.write("test_one[b]", "call", MACHINE, counted(2))
    assert file.find("test_one[a]", "call", MACHINE) == budget
    assert set(file.machines("test_one[a]", "call")) == {"another", MACHINE}
    assert [path.name for path in file.path.parent.iterdir() if path.is_file()] == ["test_it.budgets.yaml"]


def test_the_most_that_a_budget_allows() -> None:
    assert counted(1000).most == 1000
    assert counted(1000, 2).most == 1020


COUNTS = st.builds(Fraction, st.integers(0, 10**9), st.sampled_from([1, 3, 100, 700, 1000, 4096]))
PERCENT = st.decimals(0, 999, places=3).map(Fraction)


@given(COUNTS, PERCENT)
@example(Fraction(250), Fraction("5.6"))
@example(Fraction(1, 3), Fraction(0))
def test_a_budget_allows_its_percentage_exactly(before: Fraction, percent: Fraction) -> None:
    """As its file has it."""
    with tempfile.TemporaryDirectory() as folder:
        file = BudgetFile(Path(folder) / "test_it.py", Cache(Path(folder) / "cache"))
        file.write("test", "call", MACHINE, counted(before, percent))
        budget = file.find("test", "call", MACHINE)
    assert budget is not None
    assert budget.most == before * (100 + percent) / 100


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- 1", "has to have budgets by test, label and machine"),
        ("test: {call: 422}", "has to have budgets by test, label and machine"),
        ("test: [", "cannot be read: "),
        (
            "test: {call: {machine: many}}",
            "found 'many'; expected \\+N or .* or N \\+N% to allow",
        ),
        (
            "test: {call: {machine: +1%}}",
            "found '\\+1%', which adds to no number; write .*: N \\+1%",
        ),
        ("test: {call: {machine: <=300 +1%}}", "found '<=300 \\+1%'; expected"),
        ("test: {call: {machine: -1}}", "found -1; expected"),
        ("test: {call: {machine: 5 -2%}}", "found '5 -2%'; expected"),
        ("test: {call: {machine: {instructions: 5}}}", "found .*; a budget with symbols has"),
        ("test: {call: {machine: {instructions: 5, symbols: {f: many}}}}", "found .*; a budget with symbols has"),
        ("test: {call: {machine: {instructions: 5, symbols: [f]}}}", "found .*; a budget with symbols has"),
        ("test: {call: {machine: {instructions: many, symbols: {f: 5}}}}", "found 'many'; expected"),
        ("test: !!python/object/apply:os.getpid []", "cannot be read: "),
    ],
)
def test_other_files_than_budgets_are_refused(file: BudgetFile, text: str, sentence: str) -> None:
    file.path.write_text(text)
    with pytest.raises(ConfigError, match=rf"test_it\.budgets\.yaml: {sentence}"):
        file.find("test", "call", "machine")


@pytest.mark.parametrize(
    "text",
    ["test:\n  call: {a: 1}\ntest:\n  call: {machine: 2}\n", "x: {}\ntest: {call: {machine: 1,\n  machine: 2}}\n"],
)
def test_a_budget_that_is_there_twice_is_none(file: BudgetFile, text: str) -> None:
    file.path.write_text(text)
    with pytest.raises(ConfigError, match=r"test_it\.budgets\.yaml:3: duplicate key '(test|machine)', first in line"):
        file.find("test", "call", "machine")


def test_each_symbol_is_a_line_in_the_order_of_the_names(file: BudgetFile) -> None:
    """What changes is what a difference of two commits shows."""
    file.write("test", "call", MACHINE, counted(8, 0, {"small": 1.0, "Large": 7.0}))
    assert file.path.read_text().splitlines()[1:] == [
        "test:",
        "  call:",
        f"    {MACHINE}:",
        "      instructions: 8",
        "      symbols:",
        "        Large: 7",
        "        small: 1",
    ]


# Does a broken budget say where it has grown?


def test_the_largest_change_comes_first() -> None:
    before = {"equal": 50.0, "larger": 10.0, "smaller": 9.0, "lost": 3.0}
    after = {"equal": 50.0, "larger": 12.0, "smaller": 8.5, "found": 40.0}
    assert grown(before, after) == "+38.5: found 40 new, lost -3 gone, larger 2, smaller -0.5"
    assert grown(before, before) == "+0: no symbol differs"


def test_a_line_has_an_end() -> None:
    after = {f"f{number:02}": 1.0 for number in range(20)}
    assert grown({}, after).endswith("f11 1 new, and 8 more")
    assert largest({"few": 1.0, "many": 99.0}) == "many 99, few 1"


def test_a_budget_that_was_edited_is_not_blamed_on_symbols() -> None:
    after = {"f": 300.0, "g": 69.0}
    assert where_it_grew(counted(366, 0, {"f": 297.0, "g": 69.0}), after) == ["+3: f 3"]
    assert where_it_grew(counted(300, 0, after), after) == [
        "the budget was edited: its symbols add up to 369, not to 300; --qemu-update-budgets writes both",
        "since its symbols: +0: no symbol differs",
    ]
    assert where_it_grew(counted(300), after)[0] == "most are in f 300, g 69"


def test_functions_of_one_name_are_taken_together() -> None:
    symbols = [
        {"name": "f", "place": "kernel", "address": 1, "instructions": [(0, "90", 3)]},
        {"name": "f", "place": "kernel", "address": 2, "instructions": [(0, "90", 2)]},
        {"name": "f", "place": "module", "module": "mine", "address": 0, "instructions": [(0, "90", 4)]},
    ]
    described = {"cell": "call", "arch": "i386", "calls": 2, "has_details": False, "symbols": symbols}
    assert by_symbol(CellProfile.model_validate(described)) == {"f": 2.5, "f [mine]": 2.0}
