# SPDX-License-Identifier: GPL-2.0-only
"""Are records stored when what they are compared with is there, and with what follows from it?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loaded_tables import calls_experiment
from record_builders import cell as a_record
from record_builders import failed as a_failure

from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment.plan import Plan, plan
from orchestrator.guest.guest import Guest
from orchestrator.results.contract import CellRecord
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.boot import BootArtifacts, BootTask, CellBegan, Outcome, Progress
from orchestrator.run.crew import Job
from orchestrator.run.provenance import Provenance
from orchestrator.run.runner import RunJournal, TimeLeft

PLAN = plan(calls_experiment(probes=["none", "kprobe", "djprobe"]))
NONE, KPROBE, DJPROBE = (cell.id for cell in PLAN.cells)


class RecordingListener:
    """A listener that keeps what it gets."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, run: str, plan: Plan, done: int, left: TimeLeft) -> None:
        self.lines.append(f"begin {done}")

    def say(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)

    def guest_starts(self, guest: Guest) -> None:
        pass

    def cell_begins(self, cell_id: str) -> None:
        self.lines.append(f"begins {cell_id}")

    def worker_says(self, worker: str, text: str) -> None:
        self.lines.append(f"{worker}: {text}")

    def cell_ends(self, record: CellRecord) -> None:
        self.lines.append(f"ends {record.id}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "lab") as store:
        yield store


@pytest.fixture
def entry(store: Store, tmp_path: Path) -> RunEntry:
    (tmp_path / "run").mkdir()
    return store.begin_run("x", [cell.id for cell in PLAN.cells], digest="d", provenance={}, directory=tmp_path / "run")


class Book:
    """A journal, and what it stored and passed to its listener."""

    def __init__(self, store: Store, entry: RunEntry) -> None:
        self.listener = RecordingListener()
        self._store, self._entry = store, entry
        self._journal = RunJournal(entry, store, self.listener, Provenance(entry.directory), PLAN, kinds())
        boot = PLAN.boots[0]
        task = BootTask(kinds().named(boot.kind), boot, boot.cells, {}, entry.directory / "boot1")
        self._job = Job(task, BootArtifacts(None, None, {}))  # type: ignore[arg-type]  # no guest is booted here

    def take(self, *events: Outcome | Progress | CellBegan) -> None:
        for event in events:
            self._journal.take(event, self._job)

    def stored(self) -> dict[str, CellRecord]:
        return {record.id: record for record in self._store.load_run(self._entry.id).cells}


def outcome(probe: str, id_: str, value: float) -> Outcome:
    """A record as a boot gives it: a probe's has no overhead before it is compared."""
    effect = {"overhead": 0.0, "interval": (0.0, 0.0)} if probe == "none" else {"overhead": None, "interval": None}
    return Outcome(a_record(probe, id=id_, samples=(value, value), value=value, **effect))


def test_a_record_waits_for_what_it_is_compared_with(store: Store, entry: RunEntry) -> None:
    book = Book(store, entry)
    book.take(CellBegan(KPROBE), outcome("kprobe", KPROBE, 1000.0))
    assert book.stored() == {}
    book.take(outcome("none", NONE, 400.0))
    assert {id_: record.overhead for id_, record in book.stored().items()} == {NONE: 0.0, KPROBE: 600.0}
    assert book.listener.lines == [f"begins {KPROBE}", f"ends {NONE}", f"ends {KPROBE}"]


def test_a_comparison_that_proves_a_record_wrong_is_a_failed_cell(store: Store, entry: RunEntry) -> None:
    book = Book(store, entry)
    book.take(outcome("none", NONE, 400.0), outcome("djprobe", DJPROBE, 400.0))
    record = book.stored()[DJPROBE]
    assert (record.status, record.value) == ("failed", None)
    assert "it was not hit" in (record.reason or "")


def test_without_a_baseline_s_number_there_is_no_overhead(store: Store, entry: RunEntry) -> None:
    book = Book(store, entry)
    book.take(Outcome(a_failure("none", "an oops", id=NONE)), outcome("djprobe", DJPROBE, 462.0))
    record = book.stored()[DJPROBE]
    assert (record.status, record.value, record.overhead) == ("ok", 462.0, None)
    assert record.notes[-1].startswith("no overhead: the cell without a probe has no number")


def test_a_run_that_goes_on_compares_with_what_it_has(store: Store, entry: RunEntry) -> None:
    Book(store, entry).take(outcome("none", NONE, 400.0))
    book = Book(store, entry)
    book.take(outcome("djprobe", DJPROBE, 462.0))
    assert book.stored()[DJPROBE].overhead == 62.0


def test_progress_is_passed_on(store: Store, entry: RunEntry) -> None:
    book = Book(store, entry)
    book.take(Progress("booting debian-686 on pentium4"))
    assert book.listener.lines == ["booting debian-686 on pentium4"]


def test_progress_of_a_worker_is_shown_as_the_workers(store: Store, entry: RunEntry) -> None:
    book = Book(store, entry)
    book.take(Progress("booting debian-686 on pentium4", worker="left"))
    assert book.listener.lines == ["left: booting debian-686 on pentium4"]
