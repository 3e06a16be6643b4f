# SPDX-License-Identifier: GPL-2.0-only
"""Is a QEMU's monitor usable where an event loop runs, as in a notebook, and where none does?"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from orchestrator.guest.monitor import Monitor

_GREETING = {"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": ""}, "capabilities": ["oob"]}}


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """A connection to a QEMU that grants everything, and answers nothing."""
    with connected() as ours:
        yield ours


@contextlib.contextmanager
def connected() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()

    def answer() -> None:
        with theirs:
            theirs.sendall(json.dumps(_GREETING).encode() + b"\n")
            while command := theirs.recv(4096):  # each is asked once the one before is answered
                number = {key: value for key, value in json.loads(command).items() if key == "id"}
                theirs.sendall(json.dumps({"return": {}, **number}).encode() + b"\n")

    thread = threading.Thread(target=answer)
    thread.start()
    yield ours
    thread.join()


def test_it_answers_with_and_without_an_event_loop(connection: socket.socket) -> None:
    monitors: list[Monitor] = []

    async def in_a_loop() -> object:
        monitors.append(Monitor(connection))
        return monitors[0].command("query-status")

    assert asyncio.run(in_a_loop()) == {}
    assert monitors[0].command("query-status") == {}

    async def end() -> None:
        monitors[0].close()

    asyncio.run(end())


def test_guests_of_one_thread_are_asked_at_once_by_several() -> None:
    """A thread that lets one guest rest asks its QEMU while the guests' own thread asks another's."""
    with connected() as one, connected() as other_socket:
        monitors = Monitor(one), Monitor(other_socket)
        failed = list[BaseException]()

        def ask(monitor: Monitor) -> None:
            try:
                for _ in range(300):
                    monitor.command("query-status")
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=ask, args=(monitor,)) for monitor in monitors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for monitor in monitors:
            monitor.close()
        assert failed == []
