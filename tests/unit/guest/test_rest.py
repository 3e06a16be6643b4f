# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest of which nothing is asked stopped, and does it go on whenever something is, whatever QEMU does?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from orchestrator.errors import GuestError
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.rest import Rest


class Scripted:
    """A monitor whose guest runs or not; ``fails`` has the commands that it obeys and answers too late."""

    def __init__(self) -> None:
        self.state, self.sent = "running", list[str]()
        self.fails = set[str]()

    def status(self) -> str:
        return self.state

    def command(self, name: str) -> None:
        self.sent.append(name)
        self.state = {"stop": "paused", "cont": "running"}[name]
        if name in self.fails:
            raise GuestError(f"QEMU's monitor: {name} failed")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process in QEMU's place."""
    with subprocess.Popen(["sleep", "600"]) as child:
        yield child
        child.kill()


@contextlib.contextmanager
def resting(monitor: Scripted, process: subprocess.Popen[bytes]) -> Iterator[Rest]:
    rest = Rest(cast(Monitor, monitor), process.pid)
    try:
        yield rest
    finally:
        rest.end()


def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        time.sleep(0.005)
    pytest.fail("it does not come to that")


def test_it_is_stopped_when_nothing_is_asked_and_runs_while_held(process: subprocess.Popen[bytes]) -> None:
    monitor = Scripted()
    with resting(monitor, process) as rest:
        until(lambda: monitor.state == "paused")
        rest.hold()
        rest.hold()
        rest.release()
        time.sleep(0.1)
        assert monitor.sent == ["stop", "cont"]
        rest.release()
        until(lambda: monitor.state == "paused")
    assert monitor.state == "paused"  # left as it is
    assert not any(thread.name == "QEMU's rest" for thread in threading.enumerate())


@pytest.mark.parametrize("state", ["shutdown", "guest-panicked", "paused"])
def test_guest_that_does_not_run_is_left_alone(process: subprocess.Popen[bytes], state: str) -> None:
    monitor = Scripted()
    monitor.state = state
    with resting(monitor, process) as rest:
        time.sleep(0.1)
        rest.hold()
    assert monitor.sent == []


def test_what_was_obeyed_and_not_answered_is_undone(process: subprocess.Popen[bytes]) -> None:
    monitor = Scripted()
    monitor.fails = {"stop"}
    with resting(monitor, process) as rest:
        until(lambda: monitor.state == "paused")
        monitor.fails = {"cont"}
        rest.hold()
        assert monitor.sent == ["stop", "cont"]
        monitor.fails = set()
        rest.hold()
        assert monitor.sent == ["stop", "cont", "cont"]


def test_nothing_is_sent_to_a_qemu_that_is_stopped_itself(process: subprocess.Popen[bytes]) -> None:
    monitor = Scripted()
    with resting(monitor, process) as rest:
        until(lambda: monitor.state == "paused")
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        rest.hold()
        rest.release()
        assert monitor.sent == ["stop"]
        os.kill(process.pid, signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WCONTINUED)
        rest.hold()
        assert monitor.sent == ["stop", "cont"]
