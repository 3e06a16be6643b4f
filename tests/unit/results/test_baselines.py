# SPDX-License-Identifier: GPL-2.0-only
"""Is a run found by its name, and does a lab of an earlier version get names without losing anything?"""

from __future__ import annotations

import shutil
import sqlite3
import string
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell, failed

from orchestrator.errors import UsageError
from orchestrator.results import store as database
from orchestrator.results.runs import RunIdentity, find_run, prepare_directory
from orchestrator.results.store import FILE_NAME, RunEntry, Store, check_baseline_name

VERSION_1 = Path(__file__).with_name("lab_version_1.sqlite")
"""Written by the last program that knew version 1 only: a run of which one cell has failed and one has no outcome."""
VERSION_1_RUN = "20261122-212312-quickstart-77d1"


@pytest.fixture
def store(lab: Path) -> Iterator[Store]:
    with Store.open(lab) as opened:
        yield opened


def made(store: Store, experiment: str = "quickstart", status: str = "complete") -> RunEntry:
    entry = store.begin_run(experiment, [cell("none").id], digest="d", provenance={})
    prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=experiment))
    if status == "complete":
        store.record(entry.id, cell("none"))
        store.finish_run(entry.id, "complete")
    return entry


def test_a_name_is_a_run_until_it_is_another_s(store: Store, lab: Path) -> None:
    first, second = made(store), made(store)
    store.set_baseline("before", first.id)
    assert find_run("before", lab).record.run == first.id
    store.set_baseline("before", second.id)
    store.set_baseline("also", second.id)
    assert find_run("before", lab).record.run == second.id
    assert {name: baseline.run for name, baseline in store.baselines().items()} == {
        "also": second.id,
        "before": second.id,
    }
    store.remove_baseline("before")
    assert list(store.baselines()) == ["also"]
    assert store.entry(second.id).status == "complete"
    with pytest.raises(UsageError, match="unknown run 'before'"):
        find_run("before", lab)


def test_missing_baseline_is_named_with_the_nearest(store: Store, lab: Path) -> None:
    with pytest.raises(UsageError, match="unknown baseline 'nigt'") as caught:
        store.remove_baseline("nigt")
    assert "compare --set-baseline" in caught.value.hint
    run = made(store)
    store.set_baseline("night", run.id)
    with pytest.raises(UsageError, match=r"unknown baseline 'nigt'; allowed: night; did you mean 'night'\?"):
        store.remove_baseline("nigt")
    with pytest.raises(UsageError, match=r"unknown run 'nigt'; did you mean 'night'\?"):
        find_run("nigt", lab)
    with pytest.raises(UsageError, match="unknown run '2026'"):
        store.set_baseline("night", "2026")
    assert store.baselines()["night"].run == run.id


@pytest.mark.parametrize(
    "name", ["latest", "", "2026", "20261122-212312-quickstart-77d1", "Night", "a/b", "a.b", "-a", "a" * 81, "a\n"]
)
def test_wrong_baseline_names_are_refused(store: Store, name: str) -> None:
    run = made(store)
    with pytest.raises(UsageError, match="is not a valid name for a baseline") as caught:
        store.set_baseline(name, run.id)
    assert caught.value.what.isprintable()
    assert not store.baselines()


@given(st.text(string.ascii_lowercase + string.digits + "-", max_size=30))
def test_no_name_could_be_the_beginning_of_a_runs_id(name: str) -> None:
    with suppress(UsageError):
        check_baseline_name(name)
        assert name != "latest"
        assert not name[:1].isdigit()


def test_the_run_before(store: Store) -> None:
    first = made(store)
    made(store, "nightly")
    made(store, status="running")
    second = made(store)
    assert store.previous(second.id) == store.entry(first.id)
    assert store.previous(first.id) is None


def test_a_lab_of_version_1_gets_names_and_keeps_all(lab: Path) -> None:
    lab.mkdir()
    shutil.copy(VERSION_1, lab / FILE_NAME)
    with Store.open(lab) as store:
        (entry,) = store.runs()
        assert (entry.id, entry.status, entry.digest) == (VERSION_1_RUN, "interrupted", "sha256:1")
        expected = (cell("none"), cell("djprobe"), failed("jprobe", "the guest hangs"))
        assert store.load_run(entry.id).cells == expected
        assert store.unfinished_cells(entry.id) == ["pentium4/debian-686/kprobe/noop"]
        assert store.provenance(entry.id) == {"qemu": "QEMU emulator version 7.2.22"}
        store.set_baseline("old", entry.id)
    with Store.open(lab) as store:
        assert store.baselines()["old"].run == VERSION_1_RUN
    assert version(lab) == database.SCHEMA_VERSION == 2


def test_an_upgrade_that_fails_leaves_version_1(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.mkdir()
    shutil.copy(VERSION_1, lab / FILE_NAME)
    broken = database.transaction

    def stopped(connection: sqlite3.Connection) -> object:
        def only_the_version_is_refused(action: int, name: str | None, value: str | None, *_: object) -> int:
            is_set = action == sqlite3.SQLITE_PRAGMA and value is not None
            return sqlite3.SQLITE_DENY if is_set else sqlite3.SQLITE_OK

        connection.set_authorizer(only_the_version_is_refused)
        return broken(connection)

    monkeypatch.setattr(database, "transaction", stopped)
    with pytest.raises(sqlite3.DatabaseError), Store.open(lab):
        pass
    monkeypatch.undo()
    assert version(lab) == 1
    raw = sqlite3.connect(lab / FILE_NAME)
    assert raw.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'baselines'").fetchone() == (0,)
    raw.close()
    with Store.open(lab) as store:
        assert store.baselines() == {}


def test_several_processes_upgrade_at_once(lab: Path) -> None:
    lab.mkdir()
    shutil.copy(VERSION_1, lab / FILE_NAME)

    def opened(number: int) -> int:
        with Store.open(lab) as store:
            store.set_baseline(f"name{number}", VERSION_1_RUN)
            return len(store.runs())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(opened, range(8))) == [1] * 8
    with Store.open(lab) as store:
        assert len(store.baselines()) == 8


def version(lab: Path) -> int:
    raw = sqlite3.connect(lab / FILE_NAME)
    try:
        return int(raw.execute("PRAGMA user_version").fetchone()[0])
    finally:
        raw.close()
