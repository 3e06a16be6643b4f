# SPDX-License-Identifier: GPL-2.0-only
"""Is a run's process known to be alive, whatever ended it, and by whoever asks?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from file_permissions import modes_count, reading_by_modes

from orchestrator.errors import UsageError
from orchestrator.results.ownership import Ownership
from orchestrator.results.store import Store

WRITER = Path(__file__).with_name("store_writer.py")


@contextmanager
def running(lab: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that works on a new run, and the run's id."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(WRITER), str(lab), "keep-running"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def status(lab: Path) -> tuple[str, str | None]:
    """The status and the end of the only run."""
    with Store.open(lab) as store:
        (entry,) = store.runs()
        assert store.latest() == store.entry(entry.id) == entry
        return entry.status, entry.finished


def test_a_run_whose_process_is_killed_is_interrupted_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as (process, _):
        assert status(tmp_path) == ("running", None)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert status(tmp_path) == ("interrupted", None)


def test_a_run_that_ends_while_it_is_looked_at_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path) as owner, Store.open(tmp_path) as reader:
        run = owner.begin_run("x", [], digest="d", provenance={}).id
        has_owner = Ownership.has_owner

        def ends_before(self: Ownership, number: int) -> bool:
            if self is reader._ownership:
                owner.finish_run(run, "complete")
                with owner.working_on(run):
                    pass
            return has_owner(self, number)

        monkeypatch.setattr(Ownership, "has_owner", ends_before)
        (entry,) = reader.runs()
    assert entry.status == "complete"
    assert entry.finished is not None


def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    with running(tmp_path) as (process, run), Store.open(tmp_path) as store:
        with pytest.raises(UsageError, match=f"another process is working on run {run}"), store.working_on(run):
            pass
        # The one that was refused has not taken it from its owner.
        assert store.entry(run).status == "running"
        process.kill()
        process.wait()
        with store.working_on(run):
            assert store.entry(run).status == "running"
            assert status(tmp_path)[0] == "running"
        assert status(tmp_path)[0] == "interrupted"


def test_work_is_over_for_a_run_that_ended_or_was_forgotten(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        forgotten = store.begin_run("x", ["a"], digest="d", provenance={})
        store.forget_run(forgotten.id)
        # SQLite gives the next run the same number.
        with Store.open(tmp_path) as other_store:
            entry = other_store.begin_run("x", ["a"], digest="d", provenance={})
            assert status(tmp_path)[0] == "running"
        assert status(tmp_path)[0] == "interrupted"
        with store.working_on(entry.id):
            pass


def test_runs_are_owned_one_by_one(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        first, second = (store.begin_run("x", ["a"], digest="d", provenance={}) for _ in range(2))
        with store.working_on(first.id):
            pass
    with Store.open(tmp_path) as store, Store.open(tmp_path) as other_store, store.working_on(second.id):
        assert [entry.status for entry in other_store.runs()] == ["running", "interrupted"]


def test_an_unknown_run_has_no_owner(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store, pytest.raises(UsageError, match="unknown run"), store.working_on("2026"):
        pass


def test_readers_without_write_permission_see_the_same(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    store, file = tmp_path / "store", tmp_path / "owners"
    store.write_text("")
    store.chmod(0o644)
    with closing(Ownership(file, store)) as owner:
        assert owner.take(7)
        file.chmod(0o400)
        tmp_path.chmod(0o500)
        with modes_count():
            reader = Ownership(file, store)
            assert (reader.has_owner(7), reader.has_owner(8)) == (True, False)
            owner.release(7)
            assert not reader.has_owner(7)
    tmp_path.chmod(0o700)


def test_where_owners_cannot_be_seen_the_stored_word_counts(tmp_path: Path) -> None:
    store, file = tmp_path / "store", tmp_path / "owners"
    store.write_text("")
    with closing(Ownership(file, store)) as owner:
        assert owner.take(7)
    file.chmod(0)
    with modes_count(), reading_by_modes():
        assert Ownership(file, store).has_owner(7)
    file.chmod(0o600)
    assert not Ownership(file, store).has_owner(7)
