# SPDX-License-Identifier: GPL-2.0-only
"""Does each boot that is given to a worker end once, and is one that nobody wants not begun?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.errors import HostError, LabError

pytest.importorskip("distributed", reason="the extra fleet is not installed")

from distributed import Client

from orchestrator.fleet.link import Ended, Joined, Left, Link
from orchestrator.fleet.transfer import Bundle, FileReference
from orchestrator.fleet.worker import do_boot, missing, receive

LIMIT = 600.0
"""Seconds after which a thread that hangs fails a test."""

ADDRESS = "tls://127.0.0.1:1"
CONTENT = FileReference(place="a/b", sha256="0" * 64, size=1)


class PlayedClient:
    """A client of Dask's whose one worker is played: it lacks every file."""

    status = "running"
    scheduler = SimpleNamespace(ncores=None)

    def __init__(self) -> None:
        self.members: dict[str, int] = {}
        self.submitted: list[str] = []
        self.is_submitted = threading.Event()
        self.receive: Callable[[], None] = lambda: None
        self.submit_error: Exception | None = None

    def subscribe_topic(self, topic: str, handler: object) -> None:
        pass

    def sync(self, function: object, callback_timeout: float) -> dict[str, int]:
        return dict(self.members)

    def run(self, function: object, *arguments: Any, **options: Any) -> dict[str, object]:
        if function is missing:
            return {ADDRESS: arguments[0]}
        assert function is receive
        return {ADDRESS: self.receive()}

    def submit(self, task: object, *arguments: Any, key: str, **options: Any) -> object:
        assert task is do_boot
        if self.submit_error is not None:
            raise self.submit_error
        self.submitted.append(key)
        self.is_submitted.set()
        return SimpleNamespace(add_done_callback=lambda done: None)

    def cancel(self, futures: list[object], **options: Any) -> None:
        assert all(hasattr(future, "add_done_callback") for future in futures)


@pytest.fixture
def client() -> PlayedClient:
    return PlayedClient()


@pytest.fixture
def link(client: PlayedClient) -> Iterator[Link]:
    with closing(Link(cast(Client, client))) as made:
        yield made


def start(link: Link, attempt: str) -> None:
    link.start(attempt, ADDRESS, Bundle(b"", {CONTENT: Path(__file__)}))


def test_a_boot_that_is_cancelled_while_its_files_travel_is_not_begun(client: PlayedClient, link: Link) -> None:
    is_sending, may_go_on = threading.Event(), threading.Event()

    def slow() -> None:
        is_sending.set()
        assert may_go_on.wait(LIMIT)

    client.receive = slow
    start(link, "boot1-1")
    assert is_sending.wait(LIMIT)
    link.cancel("boot1-1")
    may_go_on.set()
    start(link, "boot1-2")  # behind the first one: files go to a worker one after the other
    assert client.is_submitted.wait(LIMIT)
    assert client.submitted == ["boot1-2"]


def test_a_worker_without_room_for_files_says_that_its_host_fails(client: PlayedClient, link: Link) -> None:
    full = HostError("there is no room for 1 bytes")

    def receive() -> None:
        raise full

    client.receive = receive
    start(link, "boot1-1")
    assert link.inbox.get(timeout=LIMIT) == Ended("boot1-1", full)
    assert client.submitted == []


def test_another_error_of_the_way_is_one_of_the_attempt(client: PlayedClient, link: Link) -> None:
    def damaged() -> None:
        raise LabError("a/b is not what was sent")

    client.receive = damaged
    start(link, "boot1-1")
    ended = link.inbox.get(timeout=LIMIT)
    assert isinstance(ended, Ended)
    assert str(ended.error) == "its files could not be sent: a/b is not what was sent"


def test_a_boot_that_dask_does_not_take_has_ended(client: PlayedClient, link: Link) -> None:
    client.submit_error = ValueError("cannot be serialized")
    start(link, "boot1-1")
    ended = link.inbox.get(timeout=LIMIT)
    assert isinstance(ended, Ended)
    assert "cannot be serialized" in str(ended.error)


def test_joining_and_leaving_workers_are_reported_until_the_scheduler_is_silent(
    client: PlayedClient, link: Link
) -> None:
    client.members = {"a": 1, "b": 1}
    assert {link.inbox.get(timeout=LIMIT), link.inbox.get(timeout=LIMIT)} == {Joined("a"), Joined("b")}
    client.members = {"b": 1, "c": 1}
    assert [link.inbox.get(timeout=LIMIT), link.inbox.get(timeout=LIMIT)] == [Left("a"), Joined("c")]
    assert not link.is_lost
    client.members = cast(Any, None)
    deadline = time.monotonic() + LIMIT
    while not link.is_lost and time.monotonic() < deadline:
        time.sleep(0.01)
    assert link.is_lost
