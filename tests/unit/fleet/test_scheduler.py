# SPDX-License-Identifier: GPL-2.0-only
"""Does a fleet's scheduler tell each client who is there, and keep nothing of a run that has ended?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="the extra fleet is not installed")
pytest.importorskip("distributed", reason="the extra fleet is not installed")

from distributed import Client
from distributed.security import Security

from orchestrator.fleet.scheduler import FleetScheduler, started_scheduler
from orchestrator.fleet.target import RUN_TOPIC, made_key, read_key, security_of, set_up_dask

LIMIT = 60.0
"""Seconds after which a test that waits for what never comes fails."""

RUN = f"{RUN_TOPIC}1"


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> Security:
    set_up_dask()
    return security_of(read_key(made_key(tmp_path_factory.mktemp("key") / "key")))


def on_a_scheduler(security: Security, do: Callable[[FleetScheduler], Awaitable[None]]) -> None:
    """Do something with a scheduler of its own."""

    async def main() -> None:
        scheduler = await started_scheduler("127.0.0.1", 0, security)
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
