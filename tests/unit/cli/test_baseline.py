# SPDX-License-Identifier: GPL-2.0-only
"""Do names of runs come and go as asked for, and does each command take them for a run?"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest
from called_commands import orchestrator
from record_builders import cell
from stored_profiles import store_run

from orchestrator.cli import options
from orchestrator.results.store import Store

pytestmark = pytest.mark.usefixtures("lab")


def test_a_name_from_beginning_to_end(lab: Path, tmp_path: Path) -> None:
    first = store_run(lab, tmp_path / "first", cell("none"))
    second = store_run(lab, tmp_path / "second", cell("none"))
    assert orchestrator("baseline", "set", "before", first).stdout == f"before is {first}\n"
    assert orchestrator("report", "before", "--format", "json").stdout.count(first) == 1
    assert orchestrator("baseline", "set", "before").stdout == f"before is {second} (it was {first})\n"
    (header, row) = orchestrator("baseline", "list").stdout.splitlines()
    assert row.split()[:4] == ["before", second, "x", "complete"]
    assert header.split() == ["baseline", "run", "experiment", "status", "since"]
    assert options.runs("") == ["latest", "before", second, first]
    assert options.baselines("be") == ["before"]
    assert orchestrator("baseline", "remove", "before").exit_code == 0
    assert orchestrator("baseline", "list").stdout.splitlines() == [" ".join(header.split()).replace(" ", "  ")]
    assert options.baselines("") == []


def test_times_are_local_as_in_the_list_of_runs(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_run(lab, tmp_path / "run", cell("none"))
    with patch("orchestrator.results.store.datetime") as clock:
        clock.now.return_value = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
        orchestrator("baseline", "set", "before")
    monkeypatch.setenv("TZ", "JST-9")  # POSIX: a bare system has no time zones by name
    time.tzset()
    try:
        assert orchestrator("baseline", "list").stdout.rstrip().endswith("complete  2026-03-02 08:30")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_one_cell_without_an_outcome_is_one(lab: Path) -> None:
    with Store.open(lab) as store:
        run = store.begin_run("x", [cell("none").id], digest="d", provenance={}).id
    told = f"1 cell of run {run} has no outcome yet: it was interrupted\n"
    assert orchestrator("baseline", "set", "before").stderr == told
    assert told in orchestrator("report").stderr
    with Store.open(lab) as store, store.working_on(run):
        assert f"1 cell of run {run} has no outcome yet: it is still running\n" in orchestrator("report").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "latest"], "'latest' is no name for a baseline"),
        (["set", "2026"], "'2026' is no name for a baseline"),
        (["set", "before"], "there is no run yet"),
        (["remove", "before"], "unknown baseline 'before'"),
    ],
)
def test_what_cannot_be_done(arguments: list[str], words: str, lab: Path) -> None:
    result = orchestrator("baseline", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert not lab.exists()


def test_a_run_of_another_machine_needs_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_run(tmp_path / "elsewhere", tmp_path / "run", cell("none"))
    result = orchestrator("baseline", "set", "before", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert "unknown run" in result.stderr
