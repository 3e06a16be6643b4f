# SPDX-License-Identifier: GPL-2.0-only
"""Is what is set in BPF programs taken in one spelling as parameters of a row, and is anything else refused?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.catalog.probes import parameters_of, probe_kind
from orchestrator.catalog.program_state import ProgramState
from orchestrator.errors import ConfigError


def test_assignments_are_parameters_and_back() -> None:
    state = ProgramState.of(["pid=1", "comm=a b", "filter.uid=0x2"], ["seen=16"], ["seen=my entries.json"])
    assert state.constants == {"pid": "1", "comm": "a b", "filter.uid": "0x2"}
    assert state.sizes == {"seen": 16}
    assert ProgramState.of_parameters(state.parameters) == state
    row = "./own.bpf.c program=on_read rodata='pid=1 comm=\"a b\"' max_entries=seen=0x10"
    assert parameters_of(row) == {"program": "on_read", "rodata": "pid=1 'comm=a b'", "max_entries": "seen=16"}


def test_other_constants_are_another_row(tmp_path: Path) -> None:
    (tmp_path / "own.bpf.c").touch()
    rows = ["", " rodata=pid=1", " rodata=pid=2", " rodata=pid=1 max_entries=seen=1", " map=pid=1"]
    kinds = [probe_kind(f"{tmp_path}/own.bpf.c{row}") for row in rows]
    assert len({kind.name for kind in kinds}) == len(rows)
    assert kinds[1].state == ProgramState({"pid": "1"})
    assert not kinds[0].state.is_given


def test_the_later_of_two_wins() -> None:
    later = ProgramState.of(["pid=1"], ["seen=1"])
    both = later.behind(ProgramState.of(["pid=2", "uid=3"], (), ["seen=x"]))
    assert both == ProgramState({"pid": "1", "uid": "3"}, {"seen": 1}, {"seen": "x"})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"constants": ["pid"]}, "rodata: found 'pid'; an assignment is NAME=VALUE"),
        ({"constants": ["=1"]}, "rodata: found '=1'"),
        ({"constants": ["pid="]}, "rodata: found 'pid='"),
        ({"constants": ["p-d=1"]}, "rodata: found 'p-d=1'"),
        ({"constants": ["pid=1", "pid=1"]}, "rodata: found pid twice; give it once"),
        ({"constants": [f"a{index}=1" for index in range(65)]}, "rodata: found 65 assignments; at most 64"),
        ({"sizes": ["seen=0"]}, "max_entries: seen has '0'; a map has 1 to 4294967295 entries"),
        ({"sizes": ["seen=4294967296"]}, "seen has '4294967296'"),
        ({"sizes": ["seen=many"]}, "seen has 'many'"),
        ({"contents": ["seen"]}, "map: found 'seen'"),
    ],
)
def test_other_words_are_refused(given: dict[str, list[str]], complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ProgramState.of(**given)
    assert complaint in str(refused.value)


def test_unfinished_quotes_are_refused() -> None:
    with pytest.raises(ConfigError, match="rodata: no closing quotation: quotes are as in a shell"):
        ProgramState.of_parameters({"rodata": "pid='1"})
