# SPDX-License-Identifier: GPL-2.0-only
"""Progress on a terminal and in a log: the step, the guest's console, the time left, and nothing that a guest sends."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from loaded_tables import calls_experiment
from record_builders import cell, failed
from rich.console import Console as RichConsole

from orchestrator.cli.live_progress import _Display, _Live, details
from orchestrator.cli.printing import print_columns, say
from orchestrator.cli.progress_lines import Lines
from orchestrator.experiment.plan import plan
from orchestrator.guest.console import Console
from orchestrator.guest.guest import Guest, State
from orchestrator.results.run_files import Durations
from orchestrator.run.runner import TimeLeft
from orchestrator.steps import step, step_echo, step_source

PLAN = plan(calls_experiment(probes=["none", "kprobe"]))
NONE, KPROBE = (one.id for one in PLAN.cells)
HOSTILE = b"[    0.1] fine\n\x1b[2J\x1b]0;owned\x07[    0.2] \xe2\x80\xaereversed \x1b[31mred\ttab\xff\r\n"


@dataclass
class FakeGuest:
    """A guest as the display sees it."""

    console: Console
    state: State = State.STARTING


@dataclass
class Starting:
    """Guests whose consoles have these bytes."""

    folder: Path
    guests: list[FakeGuest] = field(default_factory=list)

    def add(self, printed: bytes | None) -> Guest:
        path = self.folder / f"{len(self.guests)}.console"
        if printed is not None:
            path.write_bytes(printed)
        self.guests.append(FakeGuest(Console(path)))
        return cast(Guest, self.guests[-1])


@pytest.fixture
def starting(tmp_path: Path) -> Starting:
    return Starting(tmp_path)


def left(seconds: float) -> TimeLeft:
    return TimeLeft(PLAN, {NONE, KPROBE}, Durations(dict.fromkeys((NONE, KPROBE), seconds), {}), clock=lambda: 0.0)


def live() -> tuple[_Display, _Live]:
    display = _Display(console=RichConsole(file=io.StringIO(), width=60, force_terminal=True))
    return display, _Live(display)


def shown(display: _Display) -> str:
    console = RichConsole(file=io.StringIO(), width=60)
    console.print(display.get_renderable())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_plain_lines_have_the_time_left() -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    lines.begin("a-run", PLAN, 0, left(30.0))
    lines.cell_ends(cell("none", id=NONE))
    lines.cell_ends(cell("kprobe", id=KPROBE))
    first, second, third = stream.getvalue().splitlines()
    assert first == "run a-run: 2 cells, about 60 s left"
    assert second == f"[1/2] {NONE}: 409 instructions per call, about 30 s left"
    assert third.endswith("(overhead 627)"), "nothing is left"


def test_a_reason_is_said_once() -> None:
    stream, (display, listener) = io.StringIO(), live()
    lines = Lines(stream)
    lines.begin("a-run", PLAN, 0, left(0.0))
    listener.begin("a-run", PLAN, 0, left(0.0))
    reason = "the kernel refuses the module, and says so at [   {time}.5]\nin its log"
    for number, id_ in enumerate((NONE, KPROBE)):
        record = failed("kprobe", reason.format(time=number), id=id_)
        lines.cell_ends(record)
        listener.cell_ends(record)
    _, first, second = stream.getvalue().splitlines()
    assert first == f"[1/2] {NONE}: failed: the kernel refuses the module, and says so at [   0.5]"
    assert second == f"[2/2] {KPROBE}: failed, as [1/2]"
    assert isinstance(display.console.file, io.StringIO)
    assert f"failed, as {NONE}" in " ".join(display.console.file.getvalue().split())


def test_a_short_reason_is_said_again() -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    for id_ in (NONE, KPROBE):
        lines.cell_ends(failed("kprobe", "no", id=id_))
    assert stream.getvalue().count(": failed: no\n") == 2


def test_nothing_is_said_of_a_time_that_is_not_known() -> None:
    stream = io.StringIO()
    Lines(stream).begin("a-run", PLAN, 1, TimeLeft(PLAN, {KPROBE}, Durations({}, {})))
    assert stream.getvalue() == "run a-run: 2 cells, 1 of them done\n"


def test_the_display_has_the_console_of_a_guest_that_starts(starting: Starting) -> None:
    display, listener = live()
    listener.begin("a-run", PLAN, 1, left(200.0))
    listener.guest_starts(starting.add(b"[    0.0] Linux version 6.1\n[    0.5] smpboot: CPU0\n[    0.6] half a l"))
    text = shown(display)
    assert "50%" in text
    assert "about 7 min left" in text
    assert "half a l" in text


def test_messages_cannot_move_the_terminals_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    lines, (display, listener) = Lines(stream), live()
    for one in (lines, listener):
        one.say("sshd says \x1b[2J\u202e")
        one.warn("insmod says \x1b[2J\u202e")
    assert stream.getvalue() == "sshd says \\x1b[2J\\u202e\ninsmod says \\x1b[2J\\u202e\n"
    assert isinstance(display.console.file, io.StringIO)
    assert "insmod says \\x1b[2J\\u202e" in display.console.file.getvalue()
    assert "sshd says \\x1b[2J" in shown(display)
    say("make says \x1b[2J")
    print_columns(["name"], [["a\x1b[2J"], ["b"]])
    captured = capsys.readouterr()
    assert captured.err == "make says \\x1b[2J\n"
    assert captured.out == "name\na\\x1b[2J\nb\n"


def test_what_a_guest_prints_cannot_reach_the_terminal(starting: Starting) -> None:
    (line,) = details([starting.add(HOSTILE)])
    assert line.isprintable()
    assert "red" in line
    assert "owned" not in line or "\x07" not in line
    (cut,) = details([starting.add(b"x" * 100_000)])
    assert len(cut) <= 1024
    display, listener = live()
    listener.guest_starts(starting.add(b"[bold red]" + b"y" * 500 + b"\n"))
    assert max(map(len, shown(display).splitlines())) <= 60
    assert "[bold red]" in shown(display)


def test_without_a_console_the_step_is_shown(starting: Starting) -> None:
    ready = starting.add(b"a line\n")
    starting.guests[-1].state = State.READY
    quiet = starting.add(None)
    with step_echo(lambda line: None), step_source("boot1"), step("restore guest"), step("run", "callbench", "\x1b[2J"):
        assert details([ready, quiet]) == ["boot1: run callbench '\\x1b[2J'"]
    assert details([ready, quiet]) == []


def test_guests_that_are_gone_are_forgotten(starting: Starting) -> None:
    display, listener = live()
    listener.guest_starts(starting.add(b"first\n"))
    starting.guests[0].state = State.GONE
    listener.guest_starts(starting.add(b"second\n"))
    assert len(display.guests) == 1
