# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest's QEMU let go on, bounded and drained as it should be?"""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.guest.boot_wait import StopBeforeWork
from orchestrator.guest.console import Console
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.panic_watch import QemuWatch
from orchestrator.guest.qemu import drained
from orchestrator.process import Spawned


class Qemu:
    """A monitor of a QEMU in some state; ``said`` has the commands but for the question."""

    def __init__(self) -> None:
        self.state, self.said = "running", list[str]()

    def command(self, name: str) -> object:
        self.said.append(name)
        self.state = "running"
        return {}

    def status(self) -> str:
        return self.state


@pytest.mark.parametrize("status", ["running", "paused", "guest-panicked"])
def test_only_its_own_stop_is_ended_by_the_host(status: str) -> None:
    qemu = Qemu()
    stop = StopBeforeWork(cast("Monitor", qemu), lambda: qemu.said.append("read"), is_expected=True)
    qemu.state = status
    stop.check()
    stop.check()
    assert qemu.said == (["read", "cont"] if status == "guest-panicked" else [])
    qemu.state = "guest-panicked"
    stop.check()
    assert qemu.said == (["read", "cont", "quit"] if status == "guest-panicked" else ["read", "cont"])


def test_a_guest_without_the_device_is_not_asked() -> None:
    qemu = Qemu()
    qemu.state = "guest-panicked"
    StopBeforeWork(cast("Monitor", qemu), lambda: None, is_expected=False).check()
    assert qemu.said == []


def test_it_is_not_let_go_on_where_it_cannot_be_read() -> None:
    qemu = Qemu()
    qemu.state = "guest-panicked"

    def unreadable() -> None:
        raise LookupError

    stop = StopBeforeWork(cast("Monitor", qemu), unreadable, is_expected=True)
    with pytest.raises(LookupError):
        stop.check()
    assert (qemu.said, stop.is_expected) == ([], True)


# Is what a guest makes QEMU write looked at, until somebody stops it?


def watching(console: Path, messages: Path, ended: threading.Event) -> QemuWatch:
    """A watch that allows ten bytes."""
    return QemuWatch(cast("Spawned", SimpleNamespace(kill=ended.set)), Console(console), messages, 10)


def test_the_file_that_grows_beyond_the_limit_is_named(tmp_path: Path) -> None:
    console, messages = tmp_path / "console", tmp_path / "messages"
    messages.write_bytes(bytes(11))
    ended = threading.Event()
    watch = watching(console, messages, ended)
    ended.wait()
    assert watch.exceeded == messages
    watch.stop(lambda: None)


def test_stopped_qemu_ends_nothing_else(tmp_path: Path) -> None:
    console = tmp_path / "console"
    console.write_bytes(bytes(10))
    threads, ended = threading.active_count(), threading.Event()
    watch = watching(console, tmp_path / "missing", ended)
    watch.stop(lambda: None)
    assert threading.active_count() == threads
    assert not ended.is_set()
    assert watch.exceeded is None


# Does draining keep an unread console from blocking, and end so that a channel can read it?


def test_output_is_discarded_until_draining_ends() -> None:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    with ours, theirs:
        with drained(ours):
            for _ in range(20_000):  # without a reader some hundreds of bytes fit
                theirs.send(b"x")
        ours.setblocking(False)
        while True:
            try:
                assert set(ours.recv(1 << 16)) == set(b"x")
            except BlockingIOError:
                break
        theirs.send(b"later")
        assert ours.recv(100) == b"later"


def test_a_console_that_ends_meanwhile_is_left_alone() -> None:
    ours, theirs = socket.socketpair()
    before = threading.active_count()
    with ours:
        with drained(ours):
            theirs.close()
        assert ours.recv(1) == b""
    assert threading.active_count() == before
