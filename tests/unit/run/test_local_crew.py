# SPDX-License-Identifier: GPL-2.0-only
"""Workers meet at the coordinator: all work is done in its thread, and all of them end together."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from orchestrator.errors import HostError, Interrupted, LabError
from orchestrator.guest.guest import Guest
from orchestrator.run.coordinator import Coordinator, Stopped


class RecordingGuest(Guest):
    """A guest that was never started, and remembers being ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def abort(self) -> None:
        self.ended.set()


@pytest.mark.parametrize("jobs", [1, 3])
def test_work_is_done_by_the_thread_that_serves(jobs: int) -> None:
    coordinator = Coordinator(jobs)
    threads: list[threading.Thread] = []

    def worker() -> None:
        assert threading.current_thread() is not threading.main_thread()
        coordinator.do(lambda: threads.append(threading.current_thread()))

    coordinator.serve([worker] * 5)
    assert threads == [threading.main_thread()] * 5


def test_a_worker_goes_on_only_when_its_work_is_done() -> None:
    coordinator = Coordinator(2)
    stored: list[int] = []

    def worker(first: int) -> Callable[[], None]:
        def count() -> None:
            for number in range(first, first + 100):
                coordinator.do(partial(stored.append, number))
                assert stored[-1] >= 0
                assert number in stored

        return count

    coordinator.serve([worker(0), worker(1000)])
    assert sorted(stored) == [*range(100), *range(1000, 1100)]


def test_no_more_workers_than_jobs_are_under_way() -> None:
    coordinator = Coordinator(2)
    now, most = 0, 0
    lock = threading.Lock()

    def worker() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1

    coordinator.serve([worker] * 7)
    assert most == 2


def test_an_error_of_the_work_is_the_workers_to_handle() -> None:
    coordinator = Coordinator(1)
    caught: list[str] = []

    def refuse() -> None:
        raise LabError("the disk is full")

    def worker() -> None:
        try:
            coordinator.do(refuse)
        except LabError as error:
            caught.append(error.what)

    coordinator.serve([worker])
    assert caught == ["the disk is full"]


def test_an_error_of_a_worker_ends_the_others_and_their_guests() -> None:
    coordinator = Coordinator(2)
    guest = RecordingGuest()
    asked_again: list[type[BaseException]] = []

    def fails() -> None:
        while not coordinator.do(lambda: bool(coordinator._guests)):
            time.sleep(0.01)
        raise HostError("QEMU is not installed")

    def waits_for_its_guest() -> None:
        coordinator.watch(guest)
        assert guest.ended.wait(600)
        try:
            coordinator.do(lambda: None)
        except Stopped as stopped:
            asked_again.append(type(stopped))
            raise

    def never_begins() -> None:
        raise AssertionError("begun after the end")

    with pytest.raises(HostError, match="QEMU is not installed"):
        coordinator.serve([fails, waits_for_its_guest, never_begins])
    assert asked_again == [Stopped]


def test_an_interruption_ends_all() -> None:
    coordinator = Coordinator(1)
    guest = RecordingGuest()

    def interrupt() -> None:
        raise Interrupted(15)

    def worker() -> None:
        coordinator.watch(guest)
        coordinator.do(interrupt)
        raise AssertionError("went on after the end")

    with pytest.raises(Interrupted):
        coordinator.serve([worker])
    assert guest.ended.is_set()


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.005, 0.01])
def test_no_moment_is_a_bad_one_for_an_interruption(delay: float) -> None:
    """A real signal, while work is put, taken up, done and answered as fast as it goes."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        for _ in range(30):
            coordinator = Coordinator(4)

            def worker(coordinator: Coordinator = coordinator) -> None:
                while True:
                    coordinator.do(lambda: None)

            # A worker like the others: so the coordinator is served, however late this thread is on a busy host.
            def sender() -> None:
                time.sleep(0.01 + delay)
                os.kill(os.getpid(), signal.SIGTERM)

            with pytest.raises(Interrupted):
                coordinator.serve([worker, worker, worker, sender])
        assert signal.getsignal(signal.SIGTERM) is interrupt
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_guest_that_comes_after_the_end_is_not_started(tmp_path: Path) -> None:
    coordinator = Coordinator(1)
    coordinator.serve([])
    with pytest.raises(Stopped):
        coordinator.watch(RecordingGuest())
