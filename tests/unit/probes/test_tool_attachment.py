# SPDX-License-Identifier: GPL-2.0-only
"""Is room for what calls leave in a tool's buffers measured, and does a tool leave nothing behind?"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.catalog.probes import probe_kind
from orchestrator.catalog.tools import TOOLS_IMAGE, ToolCommand
from orchestrator.errors import CommandFailed, EvidenceError, LabError, NotEntered, UnsupportedError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes import bpf_program, tool_attachment
from orchestrator.probes.attachment import Called
from orchestrator.probes.bpf_program import BpfProgram, LoadedProgram, ProgramInfo
from orchestrator.probes.map_trial import AttendedMapTrial
from orchestrator.probes.place import Place
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tool_attachment import MeasuredProgram, ToolAttachment, pins_in, reader_beside, running_tool
from orchestrator.probes.tool_process import OutputBuffer, ToolProcess


class Rings:
    """A tool whose buffers are so full, each time that it is asked."""

    name, pid = "mine", 7

    def __init__(self, *answers: Sequence[OutputBuffer]) -> None:
        self._answers = [*answers]

    def read(self) -> None:
        """It reads what is there."""

    def rings(self) -> Sequence[OutputBuffer]:
        return self._answers.pop(0)


def ignored(calls: int) -> None:
    """Calls that are made elsewhere."""


def test_buffers_that_come_and_go_are_an_error() -> None:
    process = cast("ToolProcess", Rings([OutputBuffer(4096, 0)], [OutputBuffer(4096, 0), OutputBuffer(4096, 0)]))
    with pytest.raises(EvidenceError, match=r"^mine has other buffers after some calls than before$"):
        reader_beside(process, ignored)


def test_pins_that_cannot_be_listed_are_not_none() -> None:
    def failing(argv: Sequence[str]) -> CommandResult:
        raise CommandFailed("find failed")

    def run(argv: Sequence[str]) -> CommandResult:
        return CommandResult(tuple(argv), 1, b"", b"find: /sys/fs/bpf: no such file")

    with pytest.raises(CommandFailed):
        pins_in(cast("Guest", SimpleNamespace(succeed=failing, run=run)))


@pytest.mark.parametrize(("image", "has_other"), [(TOOLS_IMAGE, False), ("debian-amd64", True), (None, True)])
def test_the_image_with_tools_is_named_where_the_guest_has_another(image: str | None, has_other: bool) -> None:
    root = None if image is None else SimpleNamespace(name=image)

    def run(argv: Sequence[str]) -> CommandResult:
        return CommandResult(tuple(argv), 1, b"", b"")

    guest = cast("Guest", SimpleNamespace(run=run, machine=SimpleNamespace(root=root)))
    with (
        pytest.raises(EvidenceError, match=r"^the guest's image has no nosuchtool") as refused,
        running_tool(guest, ToolCommand("nosuchtool", ("nosuchtool",)), lambda: 1.0),
    ):
        pass
    assert (TOOLS_IMAGE in refused.value.hint) == has_other
    assert refused.value.hint.endswith("add its package to a recipe of yours")


SIZE = 4096


class Filling:
    """A tool with one buffer, into which each call writes records of so many bytes, as long as they have room."""

    name, pid = "mine", 7

    def __init__(self, *records: int) -> None:
        self._records, self._used = records, 0

    def read(self) -> None:
        self._used = 0

    def rings(self) -> Sequence[OutputBuffer]:
        return [OutputBuffer(SIZE, self._used)]

    def call(self, calls: int) -> None:
        for _ in range(calls):
            for record in self._records:
                self._used += record if self._used + record <= SIZE else 0


@pytest.mark.parametrize(
    ("records", "room"),
    [
        ((), None),
        ((8,), SIZE // 4 // 8),
        ((128,), SIZE // 4 // 128),
        # 16 calls overflow it, 4 do not.
        ((512,), 2),
        ((1024,), 1),
    ],
)
def test_a_batch_fills_a_quarter_of_a_buffer(records: Sequence[int], room: int | None) -> None:
    filling = Filling(*records)
    reader = reader_beside(cast("ToolProcess", filling), filling.call)
    assert (None if reader is None else reader.room) == room


@pytest.mark.parametrize("records", [(1032,), (2048,), (2048, 2040), (512, 1024), (SIZE,)])
def test_a_call_that_leaves_more_than_a_quarter_has_no_number(records: Sequence[int]) -> None:
    filling = Filling(*records)
    with pytest.raises(
        EvidenceError, match=r"^a call leaves more for mine to read than a quarter of its buffer holds$"
    ):
        reader_beside(cast("ToolProcess", filling), filling.call)


AT = 0x1000


class Programs:
    """A guest whose two programs have these runs by the kernel's count."""

    def __init__(self) -> None:
        self.runs = [0, 0]

    def info(self, _: Guest, programs: Sequence[BpfProgram]) -> Sequence[ProgramInfo]:
        return [
            ProgramInfo(number, 64, AT * number, runs, missed=0, translated=64, verified=8)
            for number, runs in enumerate(self.runs, start=1)
        ]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    made = Programs()
    measured = [
        MeasuredProgram(LoadedProgram(number, 0, f"p{number}"), (), BpfProgram(cast("Guest", None), str(number)))
        for number in (1, 2)
    ]
    monkeypatch.setattr(bpf_program, "infos", made.info)
    monkeypatch.setattr(tool_attachment, "keep_statistics", lambda guest, on: None)
    monkeypatch.setattr(tool_attachment, "pinned_programs", lambda guest, process: measured)
    monkeypatch.setattr(AttendedMapTrial, "trying", lambda trial: contextlib.nullcontext())
    return made


def attachment_of(programs: Programs) -> ToolAttachment:
    place = cast("Place", SimpleNamespace(point=None))
    kind = probe_kind("tool: mine")
    return ToolAttachment(cast("Guest", programs), kind, place, cast("ToolProcess", Rings()), "/usr/bin/mine")


def passed(attachment: ToolAttachment, programs: Programs, calls: int, *each: int) -> tuple[int, int | None]:
    """A pass of calls in which the programs run so often."""
    with attachment.separate_caller():
        attachment.set_handler("count")
        programs.runs = [before + now for before, now in zip(programs.runs, each, strict=True)]
        attachment.set_handler("noop")
    return attachment.counts(Called("program", calls, frozenset()))


@pytest.mark.parametrize(
    ("executed", "runs"),
    [
        ({}, (1000, 0)),
        ({AT: 100}, (1000, 0)),
        ({AT + 4: 100, AT + 8: 100}, (1020, 12)),
        # Several times a call, and in turn.
        ({AT: 300, 2 * AT: 100}, (3000, 1000)),
        ({AT: 50, 2 * AT: 50}, (500, 500)),
        # Other tasks run them, too.
        ({AT: 100}, (5000, 40)),
    ],
)
def test_calls_that_run_programs_are_hits(
    programs: Programs, executed: Mapping[int, int], runs: tuple[int, int]
) -> None:
    attachment = attachment_of(programs)
    if executed:
        attachment.learn(executed, 100)
    assert passed(attachment, programs, 1000, *runs) == (1000, None)


@pytest.mark.parametrize(
    ("executed", "runs", "words"),
    [
        ({0x900000: 100}, (1000, 0), "ran 1000 times, 0 of them within what is timed"),
        ({AT + 40: 100}, (1000, 1000), "ran 2000 times, 0 of them within what is timed"),
        ({AT: 50}, (1000, 500), "ran 1500 times, 500 of them within what is timed"),
        ({AT: 100}, (0, 1000), r"mine's program p1 ran 0 times in 1000 calls by the kernel's count, and QEMU has"),
        ({AT: 100}, (20, 0), "did not run$"),
    ],
)
def test_runs_outside_of_the_timed_calls_are_no_hits(
    programs: Programs, executed: Mapping[int, int], runs: tuple[int, int], words: str
) -> None:
    attachment = attachment_of(programs)
    attachment.learn(executed, 100)
    with pytest.raises(EvidenceError) as refused:
        passed(attachment, programs, 1000, *runs)
    assert re.search(words, refused.value.what)


@pytest.mark.parametrize("error", [NotEntered("never"), UnsupportedError("not here")])
def test_removal_is_proved_after_an_error_that_keeps_the_guest(
    monkeypatch: pytest.MonkeyPatch, error: LabError
) -> None:
    listed, ended = [b"", b"/sys/fs/bpf/left_behind\n"], list[str]()

    def succeed(argv: Sequence[str]) -> CommandResult:
        return CommandResult(tuple(argv), 0, listed.pop(0), b"")

    class Process:
        name = "mine"

        def __init__(self, *_: object) -> None: ...

        def attach(self) -> None: ...

        def end(self) -> None:
            ended.append("by Ctrl-C")

    monkeypatch.setattr(bpf_program, "restoring_printk", lambda guest: contextlib.nullcontext())
    monkeypatch.setattr(tool_attachment, "attaching_programs", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(tool_attachment, "ToolProcess", Process)
    monkeypatch.setattr(tool_attachment, "_started_program", lambda *_: "/usr/bin/mine")
    monkeypatch.setattr(tool_attachment, "_environment", lambda *_: {})
    monkeypatch.setattr(tool_attachment, "ToolAttachment", lambda *_: None)
    guest, nothing = cast("Guest", SimpleNamespace(succeed=succeed)), cast("Symbols", None)
    tool = tool_attachment.tool_attached(
        guest, probe_kind("tool: mine"), Path("bpfprobe"), cast("ProbePoint", None), nothing, lambda: 1.0
    )
    with pytest.raises(EvidenceError, match=r"^mine leaves pins behind: /sys/fs/bpf/left_behind$"), tool:
        raise error
    assert ended == ["by Ctrl-C"]
