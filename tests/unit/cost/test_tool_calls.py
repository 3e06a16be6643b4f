# SPDX-License-Identifier: GPL-2.0-only
"""Which calls a tool is measured with, and when no more of them have to be made."""

from __future__ import annotations

import pytest

from orchestrator.cost.tool_calls import ToolCalls


def reached(*programs: str, **calls: tuple[int, ...]) -> ToolCalls:
    return ToolCalls(programs=programs, calls=calls)


@pytest.mark.parametrize(
    ("calls", "names", "is_complete"),
    [
        ({}, [], False),
        ({"open": (1, 0, 0)}, ["open"], False),
        ({"open": (1, 0, 0), "exec": (1, 1, 0), "kill": (0, 0, 2)}, ["exec", "kill"], True),
        ({"open": (9, 0, 0), "stat": (1, 0, 0)}, ["open"], False),
        ({"open": (1, 0, 0), "stat": (0, 1, 0), "kill": (0, 0, 1)}, ["open", "stat", "kill"], True),
    ],
)
def test_the_calls_that_reach_most_programs_are_taken(
    calls: dict[str, tuple[int, ...]], names: list[str], is_complete: bool
) -> None:
    known = reached("at an open", "at a stat", "at a kill", **calls)
    assert (list(known.reaching), known.is_complete) == (names, is_complete)


def test_a_tool_is_measured_with_three_calls_at_most() -> None:
    calls = {name: tuple(int(name == each) for each in "abcd") for name in "abcd"}
    assert list(reached(*"abcd", **calls).reaching) == ["a", "b", "c"]


def test_nothing_is_known_before_a_part_is_counted() -> None:
    assert not reached().is_complete
