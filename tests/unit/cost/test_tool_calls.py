# SPDX-License-Identifier: GPL-2.0-only
"""Which calls a tool is measured with, and when no more of them have to be made."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.catalog.tools import ToolCommand
from orchestrator.cost import counted_table, tool_calls
from orchestrator.cost.call_table import call_table
from orchestrator.cost.tool_calls import ToolCalls
from orchestrator.errors import EvidenceError
from orchestrator.files import sha256_of
from orchestrator.guest.guest_scripts import lab_script

COMMAND = ToolCommand("opensnoop", ("opensnoop",))
TABLE = [call_table()[name] for name in ("getppid", "fork", "pipe")]


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


def test_a_call_that_fails_is_not_one_that_reaches_nothing() -> None:
    made: dict[str, Any] = {"getppid": "no program", "fork": "a program", "pipe": None}

    def runs(calls: Calls) -> tuple[int, ...]:
        if calls == made["getppid"]:
            raise EvidenceError("20 calls were asked for and 3 were made")
        return (0, 1)

    by_call, failures = tool_calls._reached(COMMAND, TABLE, lambda call: made[call.name], runs)
    assert by_call == {"fork": (0, 1)}
    assert failures == {
        "getppid": "20 calls were asked for and 3 were made",
        "pipe": f"programs have no system call {call_table()['pipe'].call} here",
    }


@pytest.mark.parametrize("part", ["callbench.c", "find-tool.sh", "tool_attachment.py"])
def test_what_makes_calls_and_starts_tools_is_in_the_key(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = tool_calls._inputs(COMMAND, TABLE)
    assert inputs == tool_calls._inputs(COMMAND, TABLE)
    for module in (counted_table, tool_calls):
        monkeypatch.setattr(module, "sha256_of", lambda file: "another" if file.name == part else sha256_of(file))
    monkeypatch.setattr(tool_calls, "lab_script", lambda name: b"another" if name == part else lab_script(name))
    assert inputs != tool_calls._inputs(COMMAND, TABLE)
