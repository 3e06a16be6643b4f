# SPDX-License-Identifier: GPL-2.0-only
"""Boots in threads meet at the reader of their events: it takes one event at a time, and all boots end together."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from test_boot import BOOT, Measure, Scripted, record_of, without_machine

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.errors import HostError, Interrupted, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_group import Stopped
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BootTask, Ready, Session
from orchestrator.run.boot_events import CellBegan, CellRecorded, Progress
from orchestrator.run.executor import ExecutorEvent, Job, JobEnded
from orchestrator.run.local_executor import LocalExecutor

LIMIT = 600
"""Seconds after which a test that waits for what never comes fails."""

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RecordingGuest(Guest):
    """A guest that was never started, and remembers being ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def abort(self) -> None:
        self.ended.set()


def executor_of(
    folder: Path, jobs: int, *boots: Measure, watch: Callable[[Guest], None] | None = None
) -> LocalExecutor:
    """An executor with a job for each of these ways to measure."""
    context = BuildContext(Cache(folder / "cache"))
    executor = LocalExecutor(context, jobs) if watch is None else LocalExecutor(context, jobs, watch)
    artifacts = without_machine({cell.id: Ready(None) for cell in BOOT.cells})
    for number, how in enumerate(boots, start=1):
        executor.submit(Job(BootTask(Scripted(how), BOOT, BOOT.cells, folder / f"boot{number}"), artifacts))
    return executor


def working(work: Callable[[Session], None]) -> Measure:
    """A boot that does this, and then measures all its cells."""

    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        work(session)
        for cell in cells:
            session.begin(cell)
            yield record_of(cell)

    return measure


def nothing(session: Session) -> None:
    """What a boot does that only measures."""


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_boot_reports_all_in_its_order_and_its_end_last(tmp_path: Path, jobs: int) -> None:
    threads: set[threading.Thread] = set()
    boots = [working(lambda session: threads.add(threading.current_thread()))] * 5
    reported: dict[str, list[str]] = {}
    for job, event in executor_of(tmp_path, jobs, *boots).events():
        match event:
            case CellBegan(cell):
                text = f"{cell} begins"
            case CellRecorded(record):
                text = f"{record.id} ends"
            case _:
                text = type(event).__name__
        reported.setdefault(job.name, []).append(text)
    each = [f"{cell.id} {what}" for cell in BOOT.cells for what in ("begins", "ends")]
    assert reported == {f"boot{number}": [*each, JobEnded.__name__] for number in range(1, 6)}
    assert threading.main_thread() not in threads
    assert len(threads) <= jobs


def test_an_executor_without_jobs_has_no_events(tmp_path: Path) -> None:
    assert list(executor_of(tmp_path, 2).events()) == []


def test_a_boot_goes_on_only_when_its_event_was_taken(tmp_path: Path) -> None:
    taken: set[tuple[str, str]] = set()
    went_on: list[tuple[str, str]] = []

    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        for cell in cells:
            for number in range(50):
                report = (session.task.directory.name, f"{cell.id} {number}")
                session.report(report[1])
                assert report in taken
                went_on.append(report)
            yield record_of(cell)
            assert (session.task.directory.name, cell.id) in taken

    for job, event in executor_of(tmp_path, 2, measure, measure).events():
        if isinstance(event, Progress):
            taken.add((job.name, event.text))
        elif isinstance(event, CellRecorded):
            taken.add((job.name, event.record.id))
    assert len(went_on) == 2 * len(BOOT.cells) * 50


def test_no_more_boots_than_jobs_are_under_way(tmp_path: Path) -> None:
    now, most = 0, 0
    lock = threading.Lock()
    both = threading.Barrier(2, timeout=LIMIT)

    def work(session: Session) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        both.wait()  # one alone would not go on
        with lock:
            now -= 1

    executor = executor_of(tmp_path, 2, *[working(work)] * 6)
    ended = [job.name for job, event in executor.events() if isinstance(event, JobEnded)]
    assert sorted(ended) == [f"boot{number}" for number in range(1, 7)]
    assert most == 2


def test_boots_begin_in_the_order_in_which_they_were_submitted(tmp_path: Path) -> None:
    executor = executor_of(tmp_path, 1, *[working(nothing)] * 4)
    began = list(dict.fromkeys(job.name for job, _ in executor.events()))
    assert began == ["boot1", "boot2", "boot3", "boot4"]


def test_the_first_error_ends_the_others_and_their_guests(tmp_path: Path) -> None:
    guest = RecordingGuest()
    is_watched = threading.Event()
    asked_again: list[type[BaseException]] = []
    went_on: list[str] = []

    def fails(session: Session) -> None:
        assert is_watched.wait(LIMIT)
        raise HostError("QEMU is not installed")

    def waits_for_its_guest(session: Session) -> None:
        session.watch(guest)
        is_watched.set()
        assert guest.ended.wait(LIMIT)
        try:
            session.report("is anybody there?")
        except Stopped as stopped:
            asked_again.append(type(stopped))
            raise

    def comes_too_late(session: Session) -> None:
        session.report("the thread of the one that failed is free")
        went_on.append(session.task.directory.name)

    executor = executor_of(tmp_path, 2, working(fails), working(waits_for_its_guest), working(comes_too_late))
    with pytest.raises(HostError, match="QEMU is not installed"):
        list(executor.events())
    assert asked_again == [Stopped]
    assert went_on == []


@pytest.mark.parametrize("error", [Interrupted(15), HostError("the disk is full")])
def test_an_error_of_the_reader_ends_all(tmp_path: Path, error: BaseException) -> None:
    guest = RecordingGuest()
    went_on: list[str] = []

    def work(session: Session) -> None:
        session.watch(guest)
        session.report("booting")
        went_on.append(session.task.directory.name)

    def read() -> None:
        with closing(executor_of(tmp_path, 1, working(work), working(work)).events()) as events:
            for _ in events:
                raise error

    with pytest.raises(type(error)):
        read()
    assert guest.ended.is_set()
    assert went_on == []


class Cancelled(Exception):
    """What a signal raises."""


def cancelled() -> None:
    raise Cancelled


def test_a_guest_that_comes_after_the_end_is_not_started(tmp_path: Path) -> None:
    first, second = RecordingGuest(), RecordingGuest()
    watched: list[Guest] = []
    refused: list[type[BaseException]] = []

    def work(session: Session) -> None:
        session.watch(first)
        executor._queue.put(cancelled)
        assert first.ended.wait(LIMIT)
        try:
            session.watch(second)
        except Stopped as stopped:
            refused.append(type(stopped))
            raise

    executor = executor_of(tmp_path, 1, working(work), watch=watched.append)
    with pytest.raises(Cancelled):
        list(executor.events())
    assert watched == [first]
    assert refused == [Stopped]


@pytest.mark.parametrize("jobs", [1, 3])
def test_an_interruption_ends_all_boots(tmp_path: Path, jobs: int) -> None:
    guests = [RecordingGuest() for _ in range(jobs)]
    all_there = threading.Barrier(jobs + 1, timeout=LIMIT)
    left = list(guests)

    def work(session: Session) -> None:
        guest = left.pop()
        session.watch(guest)
        all_there.wait()
        assert guest.ended.wait(LIMIT)
        session.report("not to be read")

    executor = executor_of(tmp_path, jobs, *[working(work)] * (jobs + 2))

    def interrupt() -> None:
        all_there.wait()
        executor._queue.put(cancelled)

    thread = threading.Thread(target=interrupt)
    thread.start()
    reported: list[tuple[Job, ExecutorEvent]] = []
    with pytest.raises(Cancelled):
        reported.extend(executor.events())
    thread.join()
    assert reported == []
    assert all(guest.ended.is_set() for guest in guests)
    assert left == []  # no further boot has begun


def test_request_interrupted_before_it_is_read_does_nothing(tmp_path: Path) -> None:
    executor = executor_of(tmp_path, 1, working(nothing))
    executor._queue.put(cancelled)
    reported: list[tuple[Job, ExecutorEvent]] = []
    with pytest.raises(Cancelled):
        reported.extend(executor.events())
    assert reported == []


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.005, 0.01])
def test_no_moment_is_a_bad_one_for_an_interruption(tmp_path: Path, delay: float) -> None:
    """A real signal, while events are put, taken up, read and answered as fast as it goes."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted(number)

    def read(folder: Path) -> None:
        answered: list[str] = []
        read: set[str] = set()

        def reports(session: Session) -> None:
            number = 0
            while True:
                text = f"{session.task.directory.name} {number}"
                session.report(text)
                answered.append(text)
                number += 1

        # A boot like the others: so events are read, however late this thread is on a busy host.
        def sends(session: Session) -> None:
            time.sleep(0.01 + delay)
            os.kill(os.getpid(), signal.SIGTERM)

        executor = executor_of(folder, 4, *[working(reports)] * 3, working(sends))
        with pytest.raises(Interrupted):
            read.update(event.text for _, event in executor.events() if isinstance(event, Progress))
        assert set(answered) <= read

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        for number in range(30):
            read(tmp_path / str(number))
        assert signal.getsignal(signal.SIGTERM) is interrupt
    finally:
        signal.signal(signal.SIGTERM, before)


def test_times_of_a_worker_are_not_gone_on_with_here(tmp_path: Path) -> None:
    task = BootTask(Scripted(working(nothing)), BOOT, BOOT.cells, tmp_path / "boot1")
    artifacts = without_machine({cell.id: Ready(None) for cell in BOOT.cells})
    executor = executor_of(tmp_path, 1)
    with pytest.raises(UsageError, match="were measured on worker left"):
        executor.submit(Job(task, artifacts, timed_on="left"))
    executor.submit(Job(task, artifacts, timed_on=""))
    assert [job.timed_on for job, event in executor.events() if isinstance(event, JobEnded)] == [""]


def test_handlers_of_signals_are_as_they_were(tmp_path: Path) -> None:
    def fails(session: Session) -> None:
        raise HostError("no QEMU")

    before = [signal.getsignal(number) for number in INTERRUPTIONS]
    list(executor_of(tmp_path / "a", 1, working(nothing)).events())
    assert [signal.getsignal(number) for number in INTERRUPTIONS] == before
    with pytest.raises(HostError):
        list(executor_of(tmp_path / "b", 1, working(fails)).events())
    assert [signal.getsignal(number) for number in INTERRUPTIONS] == before
    with closing(executor_of(tmp_path / "c", 1, working(nothing)).events()) as events:
        next(events)
    assert [signal.getsignal(number) for number in INTERRUPTIONS] == before


def test_events_may_be_read_in_a_thread_that_gets_no_signals(tmp_path: Path) -> None:
    read: list[str] = []

    def work() -> None:
        read.extend(type(event).__name__ for _, event in executor_of(tmp_path, 2, working(nothing)).events())

    before = [signal.getsignal(number) for number in INTERRUPTIONS]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert read[-1] == JobEnded.__name__
    assert [signal.getsignal(number) for number in INTERRUPTIONS] == before
