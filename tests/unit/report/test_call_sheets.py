# SPDX-License-Identifier: GPL-2.0-only
"""Is what a printed tree of calls leaves out in its line for others, and nowhere else?"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_profiles import stacked

from orchestrator.profile.printed.profile_sheets import TreeLimits, tree_sheet
from orchestrator.profile.stored.call_tree import call_tree
from orchestrator.report.grid import Row
from orchestrator.report.markdown import render_sheets
from orchestrator.report.sheet import Sheet

BEFORE = {"callbench": 10, "callbench;entry": 100, "callbench;entry;read": 50}
AFTER = BEFORE | {
    "callbench;entry;int3": 300,
    "callbench;entry;int3;get_kprobe": 40,
    "callbench;entry;int3;a": 2,
    "callbench;entry;int3;b": 1,
    "callbench;entry;read": 45,
}
STACKS = st.dictionaries(
    st.lists(st.sampled_from("abcd"), max_size=4).map(lambda names: ";".join(["callbench", *names])),
    st.integers(1, 1000),
    min_size=1,
)
CUTS = st.builds(TreeLimits, st.just(256), st.sampled_from([0.0, 1.0, 10.0, 60.0, 100.0]))


def rows(sheet: Sheet) -> list[Row]:
    return list(sheet.grid.blocks[0])


def test_a_tree_is_printed_the_largest_call_first() -> None:
    found = [
        (row.depth, row.label, *row.cells) for row in rows(tree_sheet(call_tree(stacked("a", AFTER)), TreeLimits(9, 1)))
    ]
    assert found == [
        (0, "callbench", "498", "10", "100.0 %"),
        (1, "entry", "488", "100", "98.0 %"),
        (2, "int3", "343", "300", "68.9 %"),
        (3, "get_kprobe", "40", "40", "8.0 %"),
        (3, "2 others", "3", "", "0.6 %"),
        (2, "read", "45", "45", "9.0 %"),
    ]


def test_deeper_frames_are_left_out() -> None:
    assert [row.label for row in rows(tree_sheet(call_tree(stacked("a", AFTER)), TreeLimits(1, 1)))] == [
        "callbench",
        "entry",
    ]


@given(STACKS, CUTS)
def test_each_caller_s_cost_is_that_of_the_lines_below(stacks: dict[str, int], cut: TreeLimits) -> None:
    found = rows(tree_sheet(call_tree(stacked("a", stacks)), cut))
    for at, row in enumerate(found):
        deeper = [one.depth > row.depth for one in found[at + 1 :]]
        length = deeper.index(False) if False in deeper else len(deeper)
        below = [one for one in found[at + 1 : at + 1 + length] if one.depth == row.depth + 1]
        if below:
            assert Fraction(row.cells[0]) == Fraction(row.cells[1]) + sum(Fraction(one.cells[0]) for one in below)


@pytest.mark.parametrize("depth", [0, 3])
def test_markdown_keeps_the_indentation(depth: int) -> None:
    text = render_sheets("Profiles", [tree_sheet(call_tree(stacked("a", AFTER)), TreeLimits(depth, 1))])
    assert ("| &nbsp;&nbsp;int3 | 343 | 300 |" in text) == (depth == 3)
