# SPDX-License-Identifier: GPL-2.0-only
"""Is a run that cannot go on left as one that was interrupted, with the results that it had?"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from loaded_tables import calls_experiment
from record_builders import cell as a_record
from record_builders import failed as a_failure

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import UsageError
from orchestrator.experiment.plan import Plan, plan
from orchestrator.results.contract import CellRecord
from orchestrator.results.run_files import Durations
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.benchmark_kind import BootArtifacts, BootTask
from orchestrator.run.boot_events import CellBegan, CellRecorded, Progress
from orchestrator.run.executor import ExecutorEvent, Job
from orchestrator.run.provenance import Provenance
from orchestrator.run.runner import ProgressListener, RunJournal, Runner, TimeLeft, check_same_cells, rounded


class Refusing:
    """An executor that takes no job: the run's times were measured elsewhere."""

    jobs = 1

    def submit(self, job: Job) -> None:
        raise UsageError("times of this run were measured elsewhere")

    def events(self) -> Generator[tuple[Job, ExecutorEvent], None, None]:
        raise AssertionError("it has no job")


def test_a_run_whose_boots_no_executor_takes_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.run.runner.prepare", lambda *given: SimpleNamespace(cells={}))
    monkeypatch.setattr("orchestrator.run.runner.host_facts", lambda context: {})
    monkeypatch.setattr("orchestrator.run.provenance._TOOLS", ())
    experiment = calls_experiment(probes=["none", "kprobe"])
    planned = plan(experiment)
    with Store.open(tmp_path) as store:
        entry = store.begin_run("demo", [cell.id for cell in planned.cells], digest=experiment.digest(), provenance={})
        runner = Runner(
            BuildContext(Cache(tmp_path / "cache")),
            store,
            RecordingListener(),
            kinds(),
            executor=lambda context, listener: nullcontext(Refusing()),
        )
        with pytest.raises(UsageError, match="measured elsewhere"):
            runner.resume(entry, experiment, planned)
        run_entry = store.entry(entry.id)
        assert (run_entry.status, run_entry.finished is not None) == ("interrupted", True)
    assert (entry.directory / "results.json").exists()


# Does a run go on only where its experiment still has the cells that it lacks?

ENTRY = RunEntry("run-1", "x", Path("/runs/1"), "2026-11-22T12:00:00", None, "interrupted", "0" * 64)


def test_cells_that_a_guest_no_longer_finds() -> None:
    planned = plan(calls_experiment(points=["vfs_read"]))
    check_same_cells(ENTRY, [planned.cells[0].id], planned)
    with pytest.raises(UsageError, match="run run-1 lacks cells that its experiment no longer has: 1, a/b for one"):
        check_same_cells(ENTRY, [planned.cells[0].id, "a/b"], planned)


# The time left of a run: what is not known is not guessed. The clock is the test's own.

PLAN = plan(calls_experiment(probes=["none", "kprobe", "djprobe"]))
NONE, KPROBE, DJPROBE = (cell.id for cell in PLAN.cells)
KNOWN = Durations({NONE: 10.0, KPROBE: 4.0, DJPROBE: 6.0}, {})


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_it_is_what_the_unfinished_cells_took_before(clock: Clock) -> None:
    left = TimeLeft(PLAN, {NONE, KPROBE, DJPROBE}, KNOWN, clock=clock)
    assert left.seconds() == 20.0
    clock.now += 3
    assert left.seconds() == 17.0
    left.ended(NONE)
    assert left.seconds() == 10.0
    assert left.text() == "about 10 s left"


def test_a_resumed_run_has_its_other_cells_left_only(clock: Clock) -> None:
    assert TimeLeft(PLAN, {DJPROBE}, KNOWN, clock=clock).seconds() == 6.0


def test_nothing_is_said_of_what_is_not_known(clock: Clock) -> None:
    left = TimeLeft(PLAN, {NONE, KPROBE}, Durations({NONE: 10.0}, {}), clock=clock)
    assert left.seconds() is None
    assert left.text() == ""
    left.ended(KPROBE)
    assert left.seconds() == 10.0, "what is left is known"


def test_a_benchmark_stands_in_for_a_cell_of_it(clock: Clock) -> None:
    benchmark = PLAN.cells[0].benchmark
    assert TimeLeft(PLAN, {NONE, KPROBE}, Durations({NONE: 10.0}, {benchmark: 5.0}), clock=clock).seconds() == 15.0


def test_nothing_is_said_once_it_takes_longer_than_before(clock: Clock) -> None:
    left = TimeLeft(PLAN, {DJPROBE}, KNOWN, clock=clock)
    clock.now += 7
    assert left.seconds() is None
    left.ended(DJPROBE)
    assert left.seconds() is None


def test_guests_side_by_side_divide_boots_and_not_cells(clock: Clock) -> None:
    two = plan(calls_experiment(probes=["none", "kprobe"], machines=[{"cpu": "pentium4"}, {"cpu": "athlon"}]))
    ids = {cell.id for cell in two.cells}
    known = Durations(dict.fromkeys(ids, 5.0), {})
    assert len(two.boots) == 2
    assert TimeLeft(two, ids, known, jobs=lambda: 1, clock=clock).seconds() == 20.0
    assert TimeLeft(two, ids, known, jobs=lambda: 2, clock=clock).seconds() == 10.0
    assert TimeLeft(two, ids, known, jobs=lambda: 8, clock=clock).seconds() == 10.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (119.0, "119 s"), (150.0, "2 min"), (3600.0, "60 min"), (9000.0, "2 h")]
)
def test_times_are_rounded(seconds: float, text: str) -> None:
    assert rounded(seconds) == text


# Are records stored when what they are compared with is there, and with what follows from it?

TWO_BOOTS = plan(calls_experiment(probes=["none", "kprobe", "djprobe"]))
NONE, KPROBE, DJPROBE = (cell.id for cell in TWO_BOOTS.cells)


class RecordingListener(ProgressListener):
    """A listener that keeps what it gets."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, run: str, plan: Plan, done: int, left: TimeLeft) -> None:
        self.lines.append(f"begin {done}")

    def say(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)

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
    return store.begin_run(
        "x", [cell.id for cell in TWO_BOOTS.cells], digest="d", provenance={}, directory=tmp_path / "run"
    )


class Book:
    """A journal, and what it stored and passed to its listener."""

    def __init__(self, store: Store, entry: RunEntry) -> None:
        self.listener = RecordingListener()
        self._store, self._entry = store, entry
        self._journal = RunJournal(entry, store, self.listener, Provenance(entry.directory), TWO_BOOTS, kinds())
        boot = TWO_BOOTS.boots[0]
        task = BootTask(kinds().named(boot.kind), boot, boot.cells, entry.directory / "boot1")
        self._job = Job(task, BootArtifacts(None, None, {}))  # type: ignore[arg-type]  # no guest is booted here

    def take(self, *events: CellRecorded | Progress | CellBegan) -> None:
        for event in events:
            self._journal.take(event, self._job)

    def stored(self) -> dict[str, CellRecord]:
        return {record.id: record for record in self._store.load_run(self._entry.id).cells}


def outcome(probe: str, id_: str, value: float) -> CellRecorded:
    """A record as a boot gives it: a probe's has no overhead before it is compared."""
    effect = {"overhead": 0.0, "interval": (0.0, 0.0)} if probe == "none" else {"overhead": None, "interval": None}
    return CellRecorded(a_record(probe, id=id_, samples=(value, value), value=value, **effect))


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
    book.take(CellRecorded(a_failure("none", "an oops", id=NONE)), outcome("djprobe", DJPROBE, 462.0))
    record = book.stored()[DJPROBE]
    assert (record.status, record.value, record.overhead) == ("ok", 462.0, None)
    assert record.notes[-1].startswith("no overhead: the cell without a probe has no number")


def test_a_run_that_goes_on_compares_with_what_it_has(store: Store, entry: RunEntry) -> None:
    Book(store, entry).take(outcome("none", NONE, 400.0))
    book = Book(store, entry)
    book.take(outcome("djprobe", DJPROBE, 462.0))
    assert book.stored()[DJPROBE].overhead == 62.0


def test_progress_is_passed_on_with_its_worker(store: Store, entry: RunEntry) -> None:
    book = Book(store, entry)
    book.take(Progress("booting debian-686 on pentium4"), Progress("booting debian-686 on athlon", worker="left"))
    assert book.listener.lines == ["booting debian-686 on pentium4", "left: booting debian-686 on athlon"]
