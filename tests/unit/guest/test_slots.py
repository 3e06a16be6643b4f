# SPDX-License-Identifier: GPL-2.0-only
"""Do guests of all processes share the slots of the host, and does a wait for one end when it can?"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from orchestrator.errors import GuestError
from orchestrator.guest import slots
from orchestrator.guest.slots import Slots, host_memory_mib, host_slots, take_slots

FORK = multiprocessing.get_context("fork")
_LIMIT = 600.0


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, on a host with two slots."""
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path))
    monkeypatch.setattr(slots, "host_slots", lambda: 2)
    return tmp_path


class GaveUpError(Exception):
    pass


def silent(text: str) -> None:
    del text


def no_wait() -> None:
    raise GaveUpError


def in_thread(work: Callable[[], Slots]) -> Slots:
    """What a thread of its own takes."""
    taken: list[Slots] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            taken.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(_LIMIT)
    assert not thread.is_alive()
    if errors:
        raise errors[0]
    return taken[0]


def take(memory_mib: int = 256) -> Slots:
    return in_thread(lambda: take_slots(memory_mib, silent, no_wait))


def test_there_are_as_many_guests_as_slots(cache: Path) -> None:
    one, other_slots = take(), take()
    with pytest.raises(GaveUpError):
        take()
    one.release()
    one.release()
    third = take()
    with pytest.raises(GaveUpError):
        take()
    for each in (other_slots, third):
        each.release()
    assert (cache / "slots").stat().st_mode & 0o777 == 0o700


def test_a_large_guest_takes_more_and_never_more_than_there_are() -> None:
    small = take(512)
    with pytest.raises(GaveUpError):
        take(513)
    small.release()
    large = take(host_memory_mib())
    with pytest.raises(GaveUpError):
        take(1)
    large.release()


def test_waiter_that_gave_up_holds_no_slot() -> None:
    small = take(512)
    with pytest.raises(GaveUpError):
        take(1024)
    take(512).release()
    small.release()


def test_a_thread_s_further_guests_do_not_wait() -> None:
    first = take_slots(1024, silent, no_wait)
    second = take_slots(1024, silent, no_wait)
    first.release()
    second.release()
    take_slots(1024, silent, no_wait).release()


def hold(taken: Event) -> None:
    take_slots(1024, silent, no_wait)
    taken.set()
    signal.pause()


def test_waiting_is_said_and_ends_with_the_other_process() -> None:
    taken = FORK.Event()
    other_process = FORK.Process(target=hold, args=(taken,))
    other_process.start()
    assert taken.wait(_LIMIT)
    said: list[str] = []

    def end_other() -> None:
        if said:
            other_process.kill()

    take_slots(256, said.append, end_other).release()
    other_process.join(_LIMIT)
    assert said == ["waiting for other guests on this host to end"]


def test_a_wait_can_be_ended() -> None:
    held = take(1024)

    def ended() -> None:
        raise GuestError("the guest was ended before it had started")

    with pytest.raises(GuestError, match="was ended"):
        in_thread(lambda: take_slots(256, silent, ended))
    held.release()


def test_a_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_PATIENCE", 0.0)
    held = take(1024)
    said: list[str] = []
    in_thread(lambda: take_slots(256, said.append, lambda: None)).release()
    assert said == ["other guests on this host do not end; this one starts anyway"]
    held.release()


def wait_as_descendant(depth: int) -> None:
    """End well where a wait for an ancestor's slots ends; some processes below it."""
    if depth:
        child = FORK.Process(target=wait_as_descendant, args=(depth - 1,))
        child.start()
        child.join(_LIMIT)
        assert child.exitcode == 0
    else:
        take_slots(256, silent, lambda: None).release()


@pytest.mark.parametrize("depth", [0, 1])
def test_a_process_does_not_wait_long_for_one_that_may_wait_for_it(monkeypatch: pytest.MonkeyPatch, depth: int) -> None:
    monkeypatch.setattr(slots, "_PATIENCE_WITH_ANCESTORS", 0.0)
    held = take(1024)
    child = FORK.Process(target=wait_as_descendant, args=(depth,))
    child.start()
    child.join(_LIMIT)
    assert child.exitcode == 0
    held.release()


def test_slots_of_other_processes_are_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with more jobs than slots keeps to the limit however long its boots take."""
    monkeypatch.setattr(slots, "_PATIENCE_WITH_ANCESTORS", 0.0)
    held = take(1024)
    polls = iter(range(5))

    def give_up() -> None:
        if next(polls, None) is None:
            raise GaveUpError

    with pytest.raises(GaveUpError):
        in_thread(lambda: take_slots(256, silent, give_up))
    held.release()


def test_without_a_cache_that_can_be_written_there_is_no_limit(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(cache / "file"))
    kept = [take() for _ in range(3)]
    for each in kept:
        each.release()


def test_this_host_has_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_slots() >= 1
