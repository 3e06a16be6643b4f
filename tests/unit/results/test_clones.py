# SPDX-License-Identifier: GPL-2.0-only
"""Which names of two kernels are one function's?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.results.stored_profile import paired, stem

_NAMES = st.sets(
    st.builds(
        lambda name, suffix: name + suffix,
        st.sampled_from(["read", "write", "f"]),
        st.sampled_from(["", ".isra.0", ".isra.1", ".constprop.0", ".part.0.isra.0", ".cold", " [lab]"]),
    )
)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("kprobe_int3_handler", "kprobe_int3_handler"),
        ("read.isra.0", "read"),
        ("read.part.0.isra.0", "read"),
        ("read.cold", "read"),
        ("read.constprop.12 [lab_kprobe]", "read [lab_kprobe]"),
        ("read.isra.0+0x5", "read+0x5"),
        ("e843419.read", "e843419.read"),
        ("read.partial", "read.partial"),
    ],
)
def test_what_a_compiler_adds_is_no_part_of_a_name(title: str, expected: str) -> None:
    assert stem(title) == expected


def test_a_clone_belongs_to_the_only_one_that_is_left_of_the_other_side() -> None:
    assert list(paired(["f.isra.0", "g"], ["g", "f"])) == [("g", "g"), ("f.isra.0", "f")]
    assert list(paired(["f"], ["f.constprop.0"])) == [("f", "f.constprop.0")]


def test_what_is_in_both_is_no_other_clone_s() -> None:
    """The part that was split off in one build only is new there."""
    assert list(paired(["f"], ["f", "f.part.0"])) == [("f", "f"), (None, "f.part.0")]


def test_two_clones_of_one_side_are_not_guessed_at() -> None:
    assert list(paired(["f"], ["f.part.0", "f.isra.0"])) == [("f", None), (None, "f.part.0"), (None, "f.isra.0")]


@given(_NAMES, _NAMES)
def test_each_name_is_there_once_and_sides_may_change_places(before: set[str], after: set[str]) -> None:
    found = list(paired(sorted(before), sorted(after)))
    assert sorted(one for one, _ in found if one is not None) == sorted(before)
    assert sorted(other for _, other in found if other is not None) == sorted(after)
    assert all(stem(one) == stem(other) for one, other in found if one is not None and other is not None)
    assert {(other, one) for one, other in found} == set(paired(sorted(after), sorted(before)))
