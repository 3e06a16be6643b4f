# SPDX-License-Identifier: GPL-2.0-only
"""Do readers of callgrind files find the tree of calls?"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_profiles import CALLS, profile, stacked

from orchestrator.profile.printed.callgrind import callgrind_text
from orchestrator.profile.stored.call_tree import CallCost, call_tree
from orchestrator.profile.stored.cell_profile import CellProfile

READER = Path("/usr/bin/callgrind_annotate")
"""Not on the PATH of tests: valgrind is of no list, since it takes 80 MB."""


def called(*stacks: tuple[str, int, int | None]) -> CellProfile:
    """A cell with stacks: names, instructions and entries of the last one per call."""
    made = stacked("a/b", {names: executed for names, executed, _ in stacks})
    entered = [(names, n * CALLS, None if times is None else times * CALLS) for names, n, times in stacks]
    return CellProfile.model_validate({**made.model_dump(), "stacks": entered})


TREE = called(
    ("callbench", 10, None),
    ("callbench;entry", 7, 1),
    ("callbench;entry;f", 5, 2),
    ("callbench;entry;f;h [lab]", 3, 4),
    ("callbench;g", 2, None),
)


def edges(text: str) -> dict[tuple[str, str], tuple[int, int]]:
    """The calls and the inclusive cost of each caller and callee."""
    pairs = {}
    for part in text.split("\nob=")[1:]:
        caller = re.search(r"^fn=(.*)$", part, re.MULTILINE)
        assert caller is not None
        for callee, calls, cost in re.findall(r"^cfn=(.*)\ncalls=(\d+) 0x[0-9a-f]+\n0x[0-9a-f]+ (\d+)$", part, re.M):
            pairs[caller[1], callee] = (int(calls), int(cost))
    return pairs


def test_each_call_has_its_number_and_all_that_it_executes() -> None:
    text = callgrind_text(TREE)
    assert edges(text) == {
        ("callbench", "entry"): (500, 7500),
        ("entry", "f"): (1000, 4000),
        ("f", "h"): (2000, 1500),
        ("callbench", "g"): (1, 1000),  # is not known
    }
    assert "\ndesc: Calls: 1 where their number is not known\n" in text
    assert "\ncob=lab\ncfn=h\n" in text


def test_without_stacks_there_are_no_calls() -> None:
    assert "calls=" not in callgrind_text(profile("a/b", {"callbench": 1, "f": 2}))


def test_a_profile_of_an_earlier_version_has_calls_without_a_number() -> None:
    assert set(edges(callgrind_text(stacked("a/b", {"callbench": 1, "callbench;f": 2}))).values()) == {(1, 1000)}


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["f", "g", "h [lab]"]), max_size=5).map(lambda names: ";".join(["callbench", *names])),
        st.integers(1, 50),
        min_size=1,
    )
)
def test_the_costs_of_calls_are_those_of_the_tree(stacks: dict[str, int]) -> None:
    made = stacked("a/b", stacks)
    expected: dict[tuple[str, str], int] = {}

    def add(caller: CallCost) -> None:
        for cost in caller.called:
            key = (caller.name.partition(" ")[0], cost.name.partition(" ")[0])
            expected[key] = expected.get(key, 0) + int(cost.total * CALLS)
            add(cost)

    for program in call_tree(made).called:
        add(program)
    assert {key: cost for key, (_, cost) in edges(callgrind_text(made)).items()} == expected


@pytest.mark.skipif(not READER.exists(), reason="no callgrind_annotate: apt install valgrind")
def test_callgrind_annotate_prints_the_tree(tmp_path: Path) -> None:
    file = tmp_path / "callgrind.out.x"
    file.write_text(callgrind_text(TREE))
    command = [str(READER), "--tree=both", "--inclusive=yes", "--threshold=100", str(file)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert printed.stderr == ""
    lines = [" ".join(re.sub(r"\([ \d.]+%\)", "", line).split()) for line in printed.stdout.splitlines()]
    assert "13,500 * ???:callbench [user]" in lines
    assert lines[lines.index("7,500 * ???:entry [kernel]") - 1] == "7,500 < ???:callbench (500x) [user]"
    assert lines[lines.index("7,500 * ???:entry [kernel]") + 1] == "4,000 > ???:f (1,000x) [kernel]"
    assert "1,500 > ???:h (2,000x) [lab]" in lines
