# SPDX-License-Identifier: GPL-2.0-only
"""How soon is a panic of a guest noticed, and the end of its QEMU? It prints figures, and tests none."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import GuestError, GuestExit, GuestPanic
from orchestrator.guest.channel import Stream
from orchestrator.guest.guest import Guest

pytestmark = [pytest.mark.guest(cpu="pentium4", timing="tcg"), pytest.mark.allow_oops(".")]

CHANNELS = {
    "framed": pytest.mark.guest(kernel="debian-686"),
    "serial": pytest.mark.guest(kernel="debian-686", image="debian-i386", channel="serial"),
    "ssh": pytest.mark.guest(kernel="debian-686", image="debian-i386", channel="ssh"),
}
EACH_CHANNEL = [pytest.param(name, marks=marks) for name, marks in CHANNELS.items()]
RESTARTS = "echo begun; sleep 1; echo c > /proc/sysrq-trigger; sleep 1000"
STAYS = "echo 1000 > /proc/sys/kernel/panic; " + RESTARTS
LIVES = "echo begun; sleep 1000"
_LOOK = 0.002


class Moment:
    """When a thread saw something for the first time, in the host's monotonic seconds."""

    def __init__(self, has_come: Callable[[], bool]) -> None:
        self._has_come = has_come
        self._over = threading.Event()
        self.time = float("nan")
        self._thread = threading.Thread(target=self._wait, daemon=True)

    def __enter__(self) -> Moment:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _wait(self) -> None:
        while not self._over.wait(_LOOK):
            if self._has_come():
                self.time = time.monotonic()
                return


def panicked(console: Path) -> Callable[[], bool]:
    """Whether a console has the last sentence of a kernel."""
    return lambda: console.exists() and b"Kernel panic - not syncing" in console.read_bytes()


def seconds_until(error: type[GuestError], action: Callable[[], object], moment: Moment) -> float:
    """From the moment to the error that the action ends with."""
    with moment, pytest.raises(error):
        action()
    return time.monotonic() - moment.time


@pytest.mark.parametrize("channel", EACH_CHANNEL)
@pytest.mark.parametrize("script", [RESTARTS, STAYS], ids=["that restarts", "that does not"])
def test_a_panic(guest: Guest, channel: str, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    moment = Moment(panicked(guest.console.path))
    taken = seconds_until(GuestPanic, lambda: guest.run(["sh", "-c", script], time_limit=30), moment)
    with capsys.disabled():
        print(
            f"\n{channel}: a panic {'that stays' if script is STAYS else 'that restarts'} is noticed in {taken:.3f} s"
        )


@pytest.mark.parametrize("channel", EACH_CHANNEL)
def test_a_dead_qemu(guest: Guest, channel: str, capsys: pytest.CaptureFixture[str]) -> None:
    killed: list[float] = []

    def kill(stream: Stream, data: bytes) -> None:
        del stream, data
        assert guest.pid is not None
        killed.append(time.monotonic())
        os.kill(guest.pid, signal.SIGKILL)

    with pytest.raises(GuestExit):
        guest.run(["sh", "-c", LIVES], listener=kill)
    with capsys.disabled():
        print(f"\n{channel}: a dead QEMU is noticed in {time.monotonic() - killed[0]:.3f} s")


@pytest.mark.parametrize("listener", [None, lambda lines: None], ids=["a boot", "unattended work"])
@pytest.mark.guest(kernel="debian-686")
def test_a_dead_qemu_of_a_guest_that_boots(
    shared_guest: Guest, tmp_path: Path, listener: Callable[[object], None] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    booting = Guest(shared_guest.machine, tmp_path)

    def die() -> bool:
        if booting.console.length() < 100 or booting.pid is None:
            return False
        os.kill(booting.pid, signal.SIGKILL)
        return True

    taken = seconds_until(GuestExit, lambda: booting.boot(listener=listener), Moment(die))
    with capsys.disabled():
        print(f"\n{'unattended' if listener else 'booting'}: a dead QEMU is noticed in {taken:.3f} s")
