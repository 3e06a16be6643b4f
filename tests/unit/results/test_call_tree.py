# SPDX-License-Identifier: GPL-2.0-only
"""Does a tree of calls have all instructions, and the difference of two all that changed?"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_profiles import stacked

from orchestrator.errors import LabError, UsageError
from orchestrator.results.stored_profile import DEEPEST, CallChange, CallCost, call_tree, compared_trees

STACKS = st.dictionaries(
    st.lists(st.sampled_from(["f", "f.isra.0", "g", "h [lab]"]), min_size=1, max_size=5).map(
        lambda names: ";".join(["callbench", *names])
    ),
    st.integers(1, 50),
    min_size=1,
)


def calls(tree: CallCost) -> Iterator[CallCost]:
    for one in tree.called:
        yield one
        yield from calls(one)


def changes(tree: CallChange) -> Iterator[CallChange]:
    for one in tree.called:
        yield one
        yield from changes(one)


@given(STACKS)
def test_a_tree_has_the_instructions_of_its_stacks(stacks: dict[str, int]) -> None:
    tree = call_tree(stacked("a/b", stacks))
    assert tree.total == sum(stacks.values())
    assert sum(one.own for one in calls(tree)) == tree.total
    assert all(one.total == one.own + sum(other.total for other in one.called) for one in calls(tree))


@given(STACKS, STACKS)
def test_the_changes_of_calls_are_the_whole_change(before: dict[str, int], after: dict[str, int]) -> None:
    first, second = call_tree(stacked("a/b", before)), call_tree(stacked("a/c", after))
    tree = compared_trees(first, second)
    assert tree.change == second.total - first.total
    assert sum(one.own_change for one in changes(tree)) == tree.change
    assert sum(abs(one.own_change) for one in changes(tree)) == tree.moved
    assert all(abs(one.change) <= one.moved for one in changes(tree))
    for side, whole in ((0, first), (1, second)):
        there = [one for one in changes(tree) if (one.before, one.after)[side] is not None]
        assert len(there) == len(list(calls(whole)))


@given(STACKS)
def test_equal_trees_do_not_differ(stacks: dict[str, int]) -> None:
    tree = call_tree(stacked("a/b", stacks))
    assert compared_trees(tree, tree).moved == 0


def test_a_clone_is_the_same_call() -> None:
    first = call_tree(stacked("a/b", {"callbench;read.isra.0": 4, "callbench;read.isra.0;copy": 1}))
    second = call_tree(stacked("a/c", {"callbench;read": 5, "callbench;read;copy": 1}))
    found = {one.name: (one.totals, one.own_change) for one in changes(compared_trees(first, second))}
    assert found["read"] == ((Fraction(5), Fraction(6)), Fraction(1))
    assert found["copy"] == ((Fraction(1), Fraction(1)), Fraction(0))


def test_no_stacks_and_stacks_that_no_plugin_writes_are_refused() -> None:
    with pytest.raises(UsageError, match="has no stacks"):
        call_tree(stacked("a/b", {}))
    call_tree(stacked("a/b", {";".join(["f"] * DEEPEST): 1}))
    with pytest.raises(LabError, match=f"has {DEEPEST + 1} calls"):
        call_tree(stacked("a/b", {";".join(["f"] * (DEEPEST + 1)): 1}))
