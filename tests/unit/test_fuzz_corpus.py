# SPDX-License-Identifier: GPL-2.0-only
"""Is every input that fuzzing has kept read or refused, and so is what is left of it when it is damaged?"""

from __future__ import annotations

import pytest
from fuzz.corpus import FOLDER, kept_inputs
from fuzz.registry import TARGETS
from fuzz.target import Feeder, Target
from hypothesis import given
from hypothesis import strategies as st

LARGEST_CORPUS = 400 << 10
"""Bytes of all inputs together: the checkout has them."""

each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)


@each_target
def test_kept_inputs_are_read_or_refused(target: Target) -> None:
    feeder = Feeder.of(target)
    for kept in kept_inputs(target):
        try:
            feeder.feed(kept.read_bytes())
        except BaseException as error:
            error.add_note(f"the input is {kept}")
            raise


@each_target
@given(data=st.data())
def test_damaged_inputs_are_read_or_refused(target: Target, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(kept_inputs(target))).read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(start + 16, len(whole))))
    Feeder.of(target).feed(whole[:start] + data.draw(st.binary(max_size=16)) + whole[end:])


def test_every_input_is_of_a_target_and_no_target_is_without() -> None:
    assert {folder.name for folder in FOLDER.iterdir()} == set(TARGETS)
    assert all(len(kept_inputs(target)) > 0 for target in TARGETS.values())
    assert sum(kept.stat().st_size for target in TARGETS.values() for kept in kept_inputs(target)) < LARGEST_CORPUS
