# SPDX-License-Identifier: GPL-2.0-only
"""Does a tree of calls have all instructions, and the difference of two all that changed?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_profiles import stacked

from orchestrator.errors import LabError, UsageError
from orchestrator.profile.stored.call_tree import DEEPEST, CallCost, call_tree

STACKS = st.dictionaries(
    st.lists(st.sampled_from(["f", "f.isra.0", "g", "h [lab]"]), min_size=1, max_size=5).map(
        lambda names: ";".join(["callbench", *names])
    ),
    st.integers(1, 50),
    min_size=1,
)


def calls(tree: CallCost) -> Iterator[CallCost]:
    for cost in tree.called:
        yield cost
        yield from calls(cost)


@given(STACKS)
def test_a_tree_has_the_instructions_of_its_stacks(stacks: dict[str, int]) -> None:
    tree = call_tree(stacked("a/b", stacks))
    assert tree.total == sum(stacks.values())
    assert sum(call.own for call in calls(tree)) == tree.total
    assert all(call.total == call.own + sum(other_cost.total for other_cost in call.called) for call in calls(tree))


def test_no_stacks_and_stacks_that_no_plugin_writes_are_refused() -> None:
    with pytest.raises(UsageError, match="has no stacks"):
        call_tree(stacked("a/b", {}))
    call_tree(stacked("a/b", {";".join(["f"] * DEEPEST): 1}))
    with pytest.raises(LabError, match=f"has {DEEPEST + 1} calls"):
        call_tree(stacked("a/b", {";".join(["f"] * (DEEPEST + 1)): 1}))
