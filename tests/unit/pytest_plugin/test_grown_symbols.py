# SPDX-License-Identifier: GPL-2.0-only
"""Does a broken budget say where it has grown?"""

from __future__ import annotations

from orchestrator.pytest_plugin.instruction_budget import Budget, by_symbol, grown, largest, where_it_grew
from orchestrator.results.stored_profile import CellProfile


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
    assert where_it_grew(Budget(366.0, 0, {"f": 297.0, "g": 69.0}), after) == ["+3: f 3"]
    assert where_it_grew(Budget(300.0, 0, after), after) == [
        "the budget was edited: its symbols add up to 369, not to 300; --qemu-update-budgets writes both",
        "since its symbols: +0: no symbol differs",
    ]
    assert where_it_grew(Budget(300.0), after)[0] == "most are in f 300, g 69"


def test_functions_of_one_name_are_taken_together() -> None:
    symbols = [
        {"name": "f", "place": "kernel", "address": 1, "instructions": [(0, "90", 3)]},
        {"name": "f", "place": "kernel", "address": 2, "instructions": [(0, "90", 2)]},
        {"name": "f", "place": "module", "module": "mine", "address": 0, "instructions": [(0, "90", 4)]},
    ]
    described = {"cell": "call", "arch": "i386", "calls": 2, "has_details": False, "symbols": symbols}
    assert by_symbol(CellProfile.model_validate(described)) == {"f": 2.5, "f [mine]": 2.0}
