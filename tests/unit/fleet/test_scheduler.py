# SPDX-License-Identifier: GPL-2.0-only
"""Does what a worker says reach its client through a scheduler, and is nothing of a run kept that has ended?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="the extra fleet is not installed")
pytest.importorskip("distributed", reason="the extra fleet is not installed")

from distributed import Client
from distributed.security import Security

from orchestrator.errors import HostError
from orchestrator.fleet.key import made_key, read_key, security_of
from orchestrator.fleet.link import Ended, Joined, Link, Message, connected
from orchestrator.fleet.messages import BEGINS, received, sent
from orchestrator.fleet.scheduler import FleetScheduler
from orchestrator.fleet.target import RUN_TOPIC, set_up_dask
from orchestrator.fleet.transfer import Bundle
from orchestrator.fleet.worker import Boots, FleetWorker, Send
from orchestrator.run.boot_events import Progress

LIMIT = 60.0
"""Seconds after which a test that waits for what never comes fails."""

RUN = f"{RUN_TOPIC}1"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    set_up_dask()
    return read_key(made_key(tmp_path_factory.mktemp("key") / "key"))


@pytest.fixture
def security(key: str) -> Security:
    return security_of(key)


def on_a_scheduler(security: Security, do: Callable[[FleetScheduler], Awaitable[None]]) -> None:
    """Do something with a scheduler of its own."""

    async def main() -> None:
        scheduler = await FleetScheduler("127.0.0.1", 0, security)
        try:
            await asyncio.wait_for(do(scheduler), LIMIT)
        finally:
            await scheduler.close()

    asyncio.run(main())


@asynccontextmanager
async def client_of(scheduler: FleetScheduler, security: Security) -> AsyncIterator[Client]:
    client = Client(scheduler.address, security=security, asynchronous=True, set_as_default=False)
    async with client:
        yield client
    while client.id in scheduler.clients:
        await asyncio.sleep(0.01)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


def test_nothing_of_a_run_is_kept(security: Security) -> None:
    async def do(scheduler: FleetScheduler) -> None:
        topics: dict[str, Any] = scheduler._broker._topics
        async with client_of(scheduler, security) as client:
            heard: list[object] = []
            client.subscribe_topic(RUN, lambda event: heard.append(event[1]["content"]))
            await until(lambda: RUN in topics)
            for number in range(3):
                scheduler.log_worker_event("tls://127.0.0.1:1", RUN, {"content": bytes([number])})
            await until(lambda: len(heard) == 3)
            assert heard == [b"\0", b"\1", b"\2"]
            assert not topics[RUN].events
        assert RUN not in topics
        scheduler.log_worker_event("tls://127.0.0.1:1", RUN, {"content": b"late"})
        assert RUN not in topics

    on_a_scheduler(security, do)


class FullBoots(Boots):
    """Boots on a host whose disk is full."""

    def do(self, attempt: str, data: bytes, send: Send) -> None:
        send(sent(attempt, Progress(BEGINS)))
        raise HostError("there is no room left", hint="make some")


def test_an_error_of_a_worker_arrives_as_it_was_behind_what_it_sent(key: str, tmp_path: Path) -> None:
    def heard(scheduler: str, worker: str) -> list[object]:
        with closing(Link(connected(scheduler, key))) as link:
            link.start("boot1-1", worker, Bundle(b"", {}))
            return [link.inbox.get(timeout=LIMIT) for _ in range(3)]

    async def do(scheduler: FleetScheduler) -> None:
        async with FleetWorker(
            scheduler.address,
            FullBoots(Path("/nowhere")),
            (1, 1024),
            name="full",
            host="127.0.0.1",
            protocol="tls",
            security=security_of(key),
            local_directory=str(tmp_path),
        ) as worker:
            items = await asyncio.to_thread(heard, scheduler.address, worker.address)
        assert Joined(worker.address) in items
        told, ended = (one for one in items if not isinstance(one, Joined))
        assert isinstance(told, Message)
        assert received(told.message) == ("boot1-1", Progress(BEGINS))
        assert isinstance(ended, Ended)
        assert isinstance(ended.error, HostError)
        assert (ended.attempt, ended.error.what, ended.error.hint) == ("boot1-1", "there is no room left", "make some")

    on_a_scheduler(security_of(key), do)
