# SPDX-License-Identifier: GPL-2.0-only
"""Does a wait end for who is idle or stopped, and not for who gets no processor?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from orchestrator import deadline
from orchestrator.deadline import Deadline, RecentWaits, processor_waits
from orchestrator.errors import LabError
from orchestrator.guest.interruption import is_stopped
from orchestrator.process import exit_status, run, spawn


class Host:
    """A host's clock, and how long each thread on it has waited for a processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.waits: dict[int, float] = {}
        monkeypatch.setattr(deadline, "_clock", deadline._Clock())
        monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(deadline, "_waits", SimpleNamespace(since=lambda earliest: dict(self.waits)))

    def seconds_until(self, end: Deadline, waiting: dict[int, float]) -> float:
        """The host's time until a deadline, while threads wait for a processor for these parts of the time."""
        begun = self.now
        while pause := end.pause():
            self.now += pause
            for thread, part in waiting.items():
                self.waits[thread] = self.waits.get(thread, 0.0) + part * pause
        return self.now - begun


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


@pytest.mark.parametrize("waiting", [{}, {1: 0.0}])
def test_deadline_is_the_limit_on_an_idle_host(host: Host, waiting: dict[int, float]) -> None:
    assert host.seconds_until(Deadline(60), waiting) == pytest.approx(60, abs=0.1)


def test_deadline_scales_with_cpu_share(host: Host) -> None:
    assert host.seconds_until(Deadline(60), {1: 7 / 8}) == pytest.approx(8 * 60, rel=0.05)


def test_threads_that_wait_together_count_once(host: Host) -> None:
    assert host.seconds_until(Deadline(60), {1: 0.5, 2: 0.5, 3: 0.25}) == pytest.approx(2 * 60, rel=0.05)


def test_deadline_ends_without_any_cpu_time(host: Host) -> None:
    assert host.seconds_until(Deadline(60), {1: 1.0}) == pytest.approx(60 * 60, rel=0.05)


def test_a_short_limit_is_extended_as_well(host: Host) -> None:
    assert host.seconds_until(Deadline(0.4), {1: 7 / 8}) == pytest.approx(8 * 0.4, rel=0.05)


def test_what_was_waited_for_before_does_not_count(host: Host) -> None:
    host.waits = {1: 1000.0}
    assert host.seconds_until(Deadline(60), {1: 0.0}) == pytest.approx(60, abs=0.1)


def test_deadline_asked_late_counts_the_time_that_work_waited(host: Host) -> None:
    """As a cell is: its time limit is asked for before each of its steps, of which one may last for most of it."""
    end = Deadline(60)
    assert end.left() == pytest.approx(60)
    host.now += 50
    host.waits = {1: 45.0}
    assert end.left() == pytest.approx(55)
    host.now += 54
    host.waits = {1: 95.0}
    assert end.left() == pytest.approx(51)


def test_a_thread_that_comes_later_counts(host: Host) -> None:
    end = Deadline(60)
    host.now += 30
    assert end.left() == pytest.approx(30)
    host.waits = {2: 25.0}
    host.now += 30
    assert end.left() == pytest.approx(25)


def test_a_limit_that_nobody_asks_for_meanwhile_is_extended_as_well(host: Host) -> None:
    end = Deadline(60)
    host.now += 300
    host.waits = {1: 250.0}
    assert end.left() == pytest.approx(10)


def test_a_thread_that_one_look_missed_does_not_bring_all_its_life(host: Host) -> None:
    """The kernel leaves out children where another ends while they are listed."""
    host.waits = {1: 5000.0}
    end = Deadline(60)
    for waits in ({}, {1: 5000.0}):
        host.waits = waits
        host.now += 20
        left = end.left()
    assert left == 60
    assert host.seconds_until(end, {1: 0.0}) == pytest.approx(60, abs=0.1)


def test_threads_that_share_a_deadline_add_what_was_waited_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[bool] = []

    def since(earliest: float) -> dict[int, float]:
        entered.append(True)
        time.sleep(0.02)  # as reading lets other threads run
        return dict(host.waits)

    monkeypatch.setattr(deadline, "_waits", SimpleNamespace(since=since))
    end = Deadline(60)
    host.now += 50
    host.waits = {1: 5.0}
    with ThreadPoolExecutor(4) as pool:
        lefts = list(pool.map(lambda _: end.left(), range(4)))
    assert lefts == pytest.approx([15] * 4)
    assert len(entered) == 2


def test_many_who_wait_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    reads: list[float] = []

    def read() -> dict[int, float]:
        reads.append(clock.now)
        return {1: clock.now}

    monkeypatch.setattr(deadline, "time", clock)
    monkeypatch.setattr(deadline, "_clock", deadline._Clock())
    monkeypatch.setattr(deadline, "processor_waits", read)
    recent = RecentWaits()
    assert recent.since(99.0) == recent.since(100.0) == {1: 100.0}
    clock.now = 100.5
    assert recent.since(99.5) == {1: 100.0}
    assert recent.since(100.25) == {1: 100.5}
    assert reads == [100.0, 100.5]


def test_the_kernel_counts_what_processes_of_ours_wait_for() -> None:
    """Two processes on one processor wait for each other; one of them is a child's child."""
    one = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{one}}})\nwhile True: pass"
    starter = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {spin!r}]).wait()"
    children = [subprocess.Popen([sys.executable, "-c", text], start_new_session=True) for text in (spin, starter)]
    try:
        before = processor_waits()
        # As many looks as it takes: how soon they have waited for so long depends on the host.
        while max(wait - before.get(thread, 0.0) for thread, wait in processor_waits().items()) < 0.5:
            time.sleep(0.05)
        grown = [thread for thread, wait in processor_waits().items() if wait - before.get(thread, 0.0) > 0]
        assert children[0].pid in grown
        assert children[1].pid not in grown or len(grown) > 2
    finally:
        for child in children:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def test_a_program_that_sleeps_or_is_stopped_is_given_up() -> None:
    with pytest.raises(LabError, match=r"sleep did not end within 0\.3 s"):
        run(["sleep", "1000"], time_limit=0.3)
    child = spawn(["sh", "-c", "kill -STOP $$; exit 3"])
    try:
        while not is_stopped(child.pid):
            time.sleep(0.01)
        assert exit_status(child, 0.3) is None
        os.kill(child.pid, signal.SIGCONT)
        assert exit_status(child, 600) == 3
    finally:
        child.close()


def test_the_time_of_a_person_in_a_debugger_does_not_count(host: Host) -> None:
    end = Deadline(60)
    host.now += 20
    with deadline.uncounted():
        host.now += 1000
        assert end.left() == pytest.approx(40)
        with deadline.uncounted():  # two guests
            host.now += 1000
        host.now += 1000
        assert end.pause() > 0
    assert end.left() == pytest.approx(40)
    assert host.seconds_until(end, {}) == pytest.approx(40, abs=0.1)
