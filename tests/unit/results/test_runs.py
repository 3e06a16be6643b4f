# SPDX-License-Identifier: GPL-2.0-only
"""Which run RUN means, and that a run's directory can be reported anywhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from record_builders import cell, run

from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.results.contract import RunRecord, json_text
from orchestrator.results.runs import RunIdentity, find_run, prepare_directory, write_results
from orchestrator.results.store import RunEntry, Store


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return tmp_path / "lab"


def made(lab: Path, experiment: str = "quickstart") -> RunEntry:
    """Make a run with one finished cell, in the store and in its directory."""
    with Store.open(lab) as store:
        entry = store.begin_run(experiment, [cell("none").id, cell("djprobe").id], digest="d", provenance={})
        prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=experiment))
        store.record(entry.id, cell("none"))
        write_results(entry.directory, store.load_run(entry.id))
    return entry


def test_a_run_is_found_by_id_prefix_directory_and_latest(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_entry, entry = made(lab, "nightly"), made(lab)
    expected = RunRecord(run=entry.id, experiment="quickstart", cells=(cell("none"),))
    for name in (entry.id, entry.id[:-2], entry.id[:-5], str(entry.directory), "latest"):
        found = find_run(name, lab)
        assert (found.record, found.directory) == (expected, entry.directory)
    assert find_run(other_entry.id, lab).directory == other_entry.directory
    monkeypatch.chdir(entry.directory)
    assert find_run(".", lab).record == expected


def test_the_store_has_more_cells_than_a_killed_runs_directory(lab: Path) -> None:
    entry = made(lab)
    with Store.open(lab) as store:
        store.record(entry.id, cell("djprobe"))
    assert find_run(str(entry.directory), lab).record.cells == (cell("none"), cell("djprobe"))


def test_results_of_a_newer_contract_are_refused_in_one_sentence(lab: Path, tmp_path: Path) -> None:
    directory = made(lab).directory
    newer = json.loads((directory / "results.json").read_text()) | {"contract": 2, "host": {}, "cells": [{"id": "new"}]}
    (directory / "results.json").write_text(json.dumps(newer))
    with pytest.raises(LabError) as refused:
        find_run(str(directory), tmp_path / "elsewhere")
    newer_version = "the file: a newer version of this program wrote it: contract 2, known up to 1"
    assert list(refused.value.detail) == [newer_version]


def test_a_directory_reports_on_another_machine(lab: Path, tmp_path: Path) -> None:
    entry = made(lab)
    moved = shutil.move(entry.directory, tmp_path / "moved")
    elsewhere = tmp_path / "elsewhere"
    assert find_run(str(moved), elsewhere).record.run == entry.id
    assert not elsewhere.exists(), "looking something up makes no lab"
    made(elsewhere)
    assert find_run(str(moved), elsewhere).record.cells == (cell("none"),)


def test_a_prefix_of_several_runs_lists_them(lab: Path) -> None:
    entries = [made(lab) for _ in range(2)]
    with pytest.raises(UsageError, match="begins the ids of 2 runs") as caught:
        find_run("2", lab)
    assert sorted(caught.value.detail) == sorted(entry.id for entry in entries)


def test_an_unknown_run_shows_the_nearest_and_the_recent(lab: Path) -> None:
    entries = [made(lab) for _ in range(7)]
    misspelt = entries[0].id.replace("quick", "qick")
    with pytest.raises(UsageError, match=f"unknown run '{misspelt}'; did you mean '20") as caught:
        find_run(misspelt, lab)
    assert caught.value.detail == ("recent runs:", *[entry.id for entry in entries[:1:-1]], "...")
    with pytest.raises(UsageError) as caught:
        find_run("zzz", lab)
    assert caught.value.what == "unknown run 'zzz'"


@pytest.mark.parametrize("name", ["latest", "2026"])
def test_a_lab_without_runs_hints_how_to_make_one(lab: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no run yet"):
        find_run(name, lab)
    with Store.open(lab), pytest.raises(UsageError, match="no run yet"):
        find_run(name, lab)


def test_a_directory_that_is_no_runs_is_reported(lab: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"it has no run\.json"):
        find_run(str(tmp_path), lab)
    with pytest.raises(UsageError, match="this directory does not exist"):
        find_run(str(tmp_path / "gone"), lab)
    with pytest.raises(UsageError, match="file name too long"):
        find_run("x" * 5000, lab)


def test_a_killed_run_on_another_machine_hints_where_to_resume(lab: Path, tmp_path: Path) -> None:
    directory = tmp_path / "out"
    prepare_directory(directory, RunIdentity(run="20261121-014502-quickstart-1f3a", experiment="quickstart"))
    with pytest.raises(UsageError, match=r"has no results\.json and"):
        find_run(str(directory), lab)


@pytest.mark.parametrize("content", ["", "{", "[]", "\udcff", '{"run": "a/../b", "experiment": "x", "cells": []}'])
def test_damaged_results_are_reported(lab: Path, tmp_path: Path, content: str) -> None:
    entry = made(lab)
    (entry.directory / "results.json").write_text(content, "utf-8", "surrogateescape")
    with pytest.raises(LabError, match="damaged") as caught:
        find_run(str(entry.directory), tmp_path / "elsewhere")
    assert caught.value.where.endswith("results.json")
    assert caught.value.detail


def test_results_of_another_run_are_refused(lab: Path, tmp_path: Path) -> None:
    entry = made(lab)
    write_results(entry.directory, run(cell("none")))
    with pytest.raises(LabError, match=f"the files are of two runs: run.json of {entry.id}"):
        find_run(str(entry.directory), tmp_path / "elsewhere")


def test_a_directory_belongs_to_one_run(tmp_path: Path) -> None:
    identity = RunIdentity(run="first", experiment="quickstart")
    prepare_directory(tmp_path, identity)
    prepare_directory(tmp_path, identity)
    with pytest.raises(UsageError, match="belongs to run first"):
        prepare_directory(tmp_path, RunIdentity(run="second", experiment="quickstart"))


def test_results_are_replaced_whole(tmp_path: Path) -> None:
    write_results(tmp_path, run(cell("none")))
    with (tmp_path / "results.json").open() as reader:
        write_results(tmp_path, run(cell("none"), cell("djprobe")))
        assert reader.read() == json_text(run(cell("none"))), "a reader of the old file reads all of it"
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert (tmp_path / "results.json").read_text() == json_text(run(cell("none"), cell("djprobe")))


def test_a_removed_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no such file"):
        write_results(tmp_path / "gone", run(cell("none")))
