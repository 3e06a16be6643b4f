# SPDX-License-Identifier: GPL-2.0-only
"""Do the verbs of a guest accept and refuse the right exit statuses, and write their steps? Without QEMU."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.catalog.cpus import cpu
from orchestrator.errors import (
    CommandFailed,
    CommandTimeout,
    EvidenceError,
    GuestConnectionLost,
    GuestExit,
    LabError,
    UsageError,
)
from orchestrator.guest.channel import CommandResult, Listener
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest import Guest, State
from orchestrator.guest.machine import Machine
from orchestrator.guest.pausing import paused, resumed
from orchestrator.steps import step_echo


class ScriptedChannel:
    """Answers each command with the next of its statuses; pauses of a poll are recorded and succeed."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.limits: list[float] = []
        self.pauses = 0

    def run(
        self, argv: Sequence[str], *, time_limit: float, directory: str = "/", listener: Listener | None = None
    ) -> CommandResult:
        if argv[0] == "sleep":
            self.pauses += 1
            time.sleep(0.01)
            return CommandResult(tuple(argv), 0, b"", b"")
        self.limits.append(time_limit)
        if not self.statuses:
            raise CommandTimeout(f"{argv[0]} did not end within {time_limit:g} s and was killed")
        return CommandResult(tuple(argv), self.statuses.pop(0), b"out\n", b"first\nwhy\n")

    def put(self, content: bytes | Path, target: str, *, mode: int, time_limit: float) -> None: ...

    def get(self, source: str, *, time_limit: float, largest: int = 0) -> bytes:
        raise GuestConnectionLost("the socket was closed")

    def close(self) -> None: ...


def guest_on(channel: ScriptedChannel, tmp_path: Path) -> Guest:
    machine = Machine(cpu("pentium4"), tmp_path / "kernel", tmp_path / "initramfs")
    guest = Guest(machine, tmp_path)
    guest._channel, guest.state = channel, State.READY
    return guest


def test_a_command_that_has_to_fail(tmp_path: Path) -> None:
    guest = guest_on(ScriptedChannel(3, 0), tmp_path)
    assert guest.fail(["insmod", "wrong.ko"]).status == 3
    with pytest.raises(CommandFailed, match=r"^`insmod wrong.ko` ended with status 0 in the guest") as succeeded:
        guest.fail(["insmod", "wrong.ko"])
    assert succeeded.value.detail == ("out", "first", "why")


def test_a_condition_is_polled_until_it_holds(tmp_path: Path) -> None:
    channel = ScriptedChannel(1, 1, 0)
    assert guest_on(channel, tmp_path).wait_until_succeeds(["test", "-e", "/tmp/ended"]).status == 0
    # Each pause is a command of the guest's: its time passes.
    assert channel.pauses == 2


def test_the_last_poll_gets_what_is_left_of_the_limit(tmp_path: Path) -> None:
    channel = ScriptedChannel(1, 0)
    guest_on(channel, tmp_path).wait_until_succeeds(["true"], time_limit=30)
    first, second = channel.limits
    assert (first, 29 < second < 30) == (30, True)


def test_a_guest_that_prints_without_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = guest_on(ScriptedChannel(), tmp_path)
    guest._qemu.agent = cast(FramedChannel, ScriptedChannel())
    guest.console.path.touch()

    def printed(after: int) -> tuple[list[str], int]:
        assert after < 100 << 20
        return ["y"], after + (1 << 10)

    monkeypatch.setattr(guest.console, "whole_lines", printed)
    guest.drain_console()


def test_a_condition_that_never_holds_is_given_up_at_the_limit(tmp_path: Path) -> None:
    channel = ScriptedChannel(*[1] * 1000)
    with pytest.raises(CommandFailed, match=r"^`false` still ended with status 1 in the guest after 0.1 s") as failed:
        guest_on(channel, tmp_path).wait_until_succeeds(["false"], time_limit=0.1)
    assert failed.value.detail == ("out", "first", "why")
    assert 2 <= len(channel.limits) < 1000


def test_a_poll_that_does_not_end_is_a_time_out(tmp_path: Path) -> None:
    with pytest.raises(CommandTimeout, match=r"^cat did not end within 5 s"):
        guest_on(ScriptedChannel(), tmp_path).wait_until_succeeds(["cat"], time_limit=5)


def test_each_verb_is_a_step(tmp_path: Path) -> None:
    guest = guest_on(ScriptedChannel(3, 0, 4, 1, 0, 7), tmp_path)
    lines: list[str] = []
    with step_echo(lines.append):
        guest.run(["sh", "-c", "exit 3"])
        guest.succeed(["true"])
        guest.fail(["false"])
        guest.wait_until_succeeds(["test", "-e", "/x"])
        with pytest.raises(CommandFailed):
            guest.succeed(["insmod", "x.ko"])
        guest.put(b"", "/tmp/file")
        with pytest.raises(GuestConnectionLost):
            guest.get("/proc/version")
        guest.kill()
    assert [re.sub(r"\d+\.\d{3} s", "T s", line)[10:] for line in lines] == [
        "run sh -c 'exit 3' (T s, status 3)",
        "succeed true (T s)",
        "fail false (T s, status 4)",
        "wait until succeeds test -e /x (T s, attempts: 2)",
        "succeed insmod x.ko FAILED (T s): `insmod x.ko` ended with status 7 in the guest",
        "put /tmp/file (T s)",
        f"get /proc/version FAILED (T s): {guest.console.path}: lost the connection to the guest while reading "
        "/proc/version: the socket was closed; QEMU is still running",
    ]


def test_a_command_that_is_one_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found 'uname -m'; a command is a list of words"):
        guest_on(ScriptedChannel(0), tmp_path).succeed("uname -m")


# Does a guest rest while the host works, and only where that changes nothing in it?


class Observed:
    """A guest that keeps what was asked of it."""

    def __init__(self, timing: str) -> None:
        self.machine = SimpleNamespace(timing=timing)
        self.done: list[str] = []
        self.state = State.READY

    def pause(self) -> None:
        self.done.append("pause")
        self.state = State.PAUSED

    def resume(self) -> None:
        self.done.append("resume")
        self.state = State.READY


@pytest.mark.parametrize(
    ("timing", "done"),
    [
        ("instructions", ["pause", "work", "resume"]),
        ("tcg", ["pause", "work", "resume"]),
        ("kvm", ["work"]),
    ],
)
def test_a_guest_is_paused_unless_its_clock_would_go_on(timing: str, done: list[str]) -> None:
    guest = Observed(timing)
    with paused(cast(Guest, guest)):
        guest.done.append("work")
    assert guest.done == done


@pytest.mark.parametrize(
    ("error", "done"),
    [(EvidenceError("another count"), ["pause", "resume"]), (GuestExit("QEMU ended"), ["pause"])],
    ids=["proof", "guest"],
)
def test_a_guest_goes_on_after_a_failed_proof_and_not_after_its_own_failure(error: LabError, done: list[str]) -> None:
    guest = Observed("instructions")
    with pytest.raises(type(error)), paused(cast(Guest, guest)):
        raise error
    assert guest.done == done


def test_a_paused_guest_runs_while_something_is_read_from_it() -> None:
    guest = Observed("instructions")
    with resumed(cast(Guest, guest)):
        guest.done.append("read")
    with paused(cast(Guest, guest)), resumed(cast(Guest, guest)):
        guest.done.append("read")
    assert guest.done == ["read", "pause", "resume", "read", "pause", "resume"]
