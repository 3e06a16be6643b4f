# SPDX-License-Identifier: GPL-2.0-only
"""Is what a guest says of its BPF programs read in full, and anything else an error of the cell?"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from guest_with_files import guest_with
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts.bpf_objects import BpfObject
from orchestrator.artifacts.sources import line_source
from orchestrator.catalog.probes import probe_kind, probes
from orchestrator.errors import EvidenceError, GuestHang, HitSkipped
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes import bpf_attachment
from orchestrator.probes import bpf_witness as module
from orchestrator.probes.attachment import Called
from orchestrator.probes.bpf_attachment import BpfAttachment
from orchestrator.probes.bpf_hits import UserBpfProgram, hits_besides
from orchestrator.probes.bpf_program import (
    Attached,
    AttachTarget,
    BpfEvent,
    BpfProgram,
    ProgramInfo,
    attached_as,
    attached_by,
)
from orchestrator.probes.bpf_refusal import refusal_of
from orchestrator.probes.bpf_witness import Witness
from orchestrator.probes.place import Place
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tool_process import ToolProcess, check_all_kept
from orchestrator.probes.user_bpf_attachment import (
    ObjectAttachment,
    UserBpfAttachment,
    _Loader,
    code_lines,
    hits_at,
    placed,
)
from orchestrator.probes.user_point import UserPoint
from orchestrator.profile.stored.cell_profile import CellProfile, CodeLine, InstructionCount, SymbolProfile


def program(printed: bytes) -> BpfProgram:
    return BpfProgram(guest_with({}, printed=printed), "/sys/fs/bpf/lab-a")


def test_what_it_is_and_did_is_read() -> None:
    assert program(b"id=9 jited=57 code=9 runs=1234 missed=0 translated=64 verified=8\n").info() == ProgramInfo(
        number=9, jited=57, code=9, runs=1234, missed=0, translated=64, verified=8
    )
    assert program(b"count=1000 dropped=2\n").counts() == (1000, 2)
    assert program(b"1 40\n72 1000\n").hits() == {1: 40, 72: 1000}
    assert program(b"").hits() == {}


def test_it_is_detached_when_the_kernel_has_it_no_more() -> None:
    """The kernel may release a link on another CPU, after its last name is gone."""
    said: list[Sequence[str]] = []

    def answer(argv: Sequence[str]) -> CommandResult:
        said.append(argv[1:])
        return CommandResult(tuple(argv), 0, b"id=9 jited=57 code=9 runs=1 missed=0 translated=64 verified=8\n", b"")

    guest = cast("Guest", SimpleNamespace(succeed=answer, run=answer))
    BpfProgram(guest, "/sys/fs/bpf/lab-a").detach()
    assert said == [["info", "/sys/fs/bpf/lab-a"], ["-r", "/sys/fs/bpf/lab-a"], ["gone", "9"]]


@pytest.mark.parametrize(
    "printed",
    [b"", b"id=2", b"id=2 jited=57 code=9 runs=-1 missed=0 translated=64 verified=8\n", b"\xff\n", b"9" * 5000],
)
def test_what_it_cannot_have_said_is_refused(printed: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest does not say what its BPF program is$"):
        program(printed).info()
    with pytest.raises(EvidenceError, match=r"^the guest does not say what its BPF program has counted$"):
        program(printed).counts()


@pytest.mark.parametrize(
    "printed", [b"1\n", b"1 2 3\n", b"1 2\n1 3\n", b"one 2\n", b"".join(b"%d 1\n" % pid for pid in range(4096))]
)
def test_hits_of_nobody_or_of_too_many_are_refused(printed: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest does not say who hit the BPF program: "):
        program(printed).hits()


def test_events_are_whole() -> None:
    content = struct.pack("<QII6Q", 99, 0, 72, 1, 2, 3, 4, 5, 6)
    assert program(content * 2).events() == [BpfEvent(99, 72, (1, 2, 3, 4, 5, 6))] * 2
    with pytest.raises(EvidenceError, match=r"have 65 bytes, not a whole number of events$"):
        program(content + b"x").events()


def test_what_a_process_has_attached_is_read() -> None:
    printed = b"4 kprobe 0 0 1 5 vfs_read\n7 trampoline 24 0 1 0 vfs_read\n9 multi 42 1 3 0 -\n"
    assert attached_by(guest_with({}, printed=printed), 121) == [
        Attached(4, "kprobe", 0, 0, 1, 5, "vfs_read"),
        Attached(7, "trampoline", 24, 0, 1, 0, "vfs_read"),
        Attached(9, "multi", 42, 1, 3, 0, ""),
    ]
    assert attached_by(guest_with({}, printed=b""), 121) == []


@pytest.mark.parametrize(
    ("printed", "kind"),
    [
        (b"4 kprobe 0 0 1 0 vfs_read\n", "bpf-kprobe"),
        (b"4 kprobe 0 1 1 0 vfs_read\n", "bpf-kretprobe"),
        (b"4 multi 42 0 3 0 -\n", "bpf-kprobe-multi (3 places)"),
        (b"4 multi 42 1 1 0 -\n", "bpf-kretprobe-multi"),
        (b"4 multi 56 0 1 0 -\n", "bpf-kprobe-session"),
        (b"4 places 48 0 1 0 -\n", "bpf-uprobe-multi"),
        (b"4 places 57 0 1 0 -\n", "bpf-uprobe-session"),
        (b"4 typed 23 0 1 0 -\n", "bpf-tp-btf"),
        (b"4 trampoline 25 0 1 0 vfs_read\n", "bpf-fexit"),
        (b"4 functions 59 0 2 0 -\n", "bpf-fentry-multi (2 places)"),
        # Linux 6.1 does not say whether it is at the return.
        (b"4 multi 42 255 1 0 -\n", "multi"),
        (b"4 other 0 0 1 0 -\n", "other"),
        (b"4 kprobe 0 0 1 0 f\n4 kprobe 0 0 1 0 g\n5 kprobe 0 1 1 0 f\n", "bpf-kprobe (2 places), bpf-kretprobe"),
    ],
)
def test_attached_link_has_the_catalogues_name(printed: bytes, kind: str) -> None:
    assert attached_as(attached_by(guest_with({}, printed=printed), 121)) == kind


def test_each_program_of_the_catalogue_has_a_name_when_another_process_attaches_it() -> None:
    for kind in probes().values():
        if kind.program is not None:
            attached = Attached(4, kind.program.link, kind.program.attach_type, kind.program.flags, 1, 0, "")
            assert probes()[attached.kind].program == kind.program.model_copy(update={"is_compiled": True})


@pytest.mark.parametrize(
    "printed",
    [
        b"4 kprobe 0 0 1 0 x\n" * 30_000,
        b"4 kprobe 0 0 1 vfs_read\n",
        b"x kprobe 0 0 1 0 vfs_read\n",
        b"4 kprobe 0 0 1 0 " + b"v" * 256 + b"\n",
    ],
)
def test_what_no_process_can_have_attached_is_refused(printed: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest does not say what is attached: "):
        attached_by(guest_with({}, printed=printed), 121)


# Does a witness fail programs that ran less often than it saw hits, and tell a process's hits from others?

HITS = {7: 100, 8: 3}


@dataclass
class Program:
    runs: int = 0
    missed: int = 0
    is_attached: bool = True

    def info(self) -> ProgramInfo:
        return ProgramInfo(number=2, jited=1, code=9, runs=self.runs, missed=self.missed, translated=64, verified=8)

    def hits(self) -> Mapping[int, int]:
        return HITS

    def detach(self) -> None:
        self.is_attached = False


class Switches:
    def __init__(self) -> None:
        self.put_there: list[bytes] = []

    def put(self, content: bytes, target: str) -> None:
        assert target.endswith("bpf_stats_enabled")
        self.put_there.append(content)

    def get(self, source: str, **_: object) -> bytes:
        assert source.endswith("bpf_stats_enabled")
        return self.put_there[-1]


@pytest.fixture
def own_program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """The witness's own program."""
    program = Program()
    monkeypatch.setattr(module, "attach", lambda *_: program)
    return program


def beside(*programs: Program) -> tuple[Witness, Switches]:
    guest = Switches()
    witness = Witness(cast(Guest, guest), AttachTarget(probes()["bpf-kprobe"], "vfs_read"))
    # Two programs may have one name.
    witness.begin([("the BPF program f", cast(BpfProgram, program)) for program in programs])
    return witness, guest


def test_programs_that_ran_at_every_hit(own_program: Program) -> None:
    first, second = Program(runs=50), Program(runs=5)
    witness, guest = beside(first, second)
    first.runs, second.runs = 50 + 103, 5 + 104
    assert witness.is_counting
    assert witness.look() == 103
    witness.detach()
    assert (witness.is_counting, own_program.is_attached) == (False, False)
    witness.end()
    assert guest.put_there == [b"1", b"0"]
    assert witness.counts(Called("sysenter", 1, frozenset({7}))) == (100, 3)


@pytest.mark.usefixtures("own_program")
def test_a_program_that_ran_less_often() -> None:
    lazy, diligent = Program(), Program()
    witness, _ = beside(lazy, diligent)
    lazy.runs, diligent.runs = 102, 1000
    with pytest.raises(EvidenceError, match=r"^the BPF program f ran 102 times, and the witness beside it 103 times$"):
        witness.look()


@pytest.mark.usefixtures("own_program")
def test_a_skipped_hit_is_told_where_hits_are_counted_so_that_the_pass_may_be_repeated() -> None:
    program = Program()
    witness, _ = beside(program)
    program.runs, program.missed = 200, 4
    assert witness.look() == 0
    with pytest.raises(HitSkipped, match=r"^the kernel skipped the BPF program f 4 times$"):
        witness.counts(Called("sysenter", 1, frozenset({7})))
    witness.begin([("the BPF program f", cast(BpfProgram, program))])
    program.runs = 400
    assert witness.look() == 103  # what was skipped before does not count


@pytest.mark.usefixtures("own_program")
@pytest.mark.parametrize(
    ("at", "name"),
    [
        ("bpf-kretprobe", "the BPF program"),
        ("bpf-kretprobe-multi", "f"),
        ("bpf-kprobe", "the BPF program f (kretprobe/schedule)"),
    ],
)
def test_returns_that_were_missed_are_named(at: str, name: str) -> None:
    """Those of a user's own program, too, beside which the witness counts entries."""
    lazy = Program()
    witness = Witness(cast(Guest, Switches()), AttachTarget(probes()[at], "schedule"))
    witness.begin([(name, cast(BpfProgram, lazy))])
    lazy.runs = 3
    with pytest.raises(EvidenceError) as raised:
        witness.look()
    assert raised.value.what == f"the kernel missed 100 of 103 returns: {name} ran 3 times"
    assert "maxactive" in raised.value.hint


# Are the runs of a hit, at the entry and at the return, one hit?

POINT = ProbePoint("vfs_read", 0, 0x1000, b"\x0f\x1f\x44\0\0")
ENTRY, RETURN = 0x1005, 0x5678
CALLED = Called("syscall", 100, frozenset({7}))


def events(*addresses: int, pid: int = 7) -> list[BpfEvent]:
    return [BpfEvent(99, pid, (address, 0, 0, 0, 0, 0)) for address in addresses]


@dataclass
class AtThePoint:
    """What is attached there: the program, a witness of its runs, or one of the function's entries."""

    seen: Mapping[int, int]
    ring: Sequence[BpfEvent] = ()
    runs: int = 0

    def info(self) -> ProgramInfo:
        return ProgramInfo(number=2, jited=1, code=9, runs=self.runs, missed=0, translated=64, verified=8)

    def hits(self) -> Mapping[int, int]:
        return self.seen

    def counts(self) -> tuple[int, int]:
        return sum(self.seen.values()), 0

    def events(self) -> Sequence[BpfEvent]:
        return self.ring

    def detach(self) -> None:
        pass


def session(
    monkeypatch: pytest.MonkeyPatch, runs: Mapping[int, int], ring: Sequence[BpfEvent] = (), entered: int = 100
) -> BpfAttachment:
    """A program of kprobe.session after a pass of 100 calls, with the runs that the witness beside it has seen."""
    entries, program = AtThePoint({7: entered}), AtThePoint(runs, ring)

    def attach(_: Guest, name: str, *__: object) -> AtThePoint:
        return entries if name == "lab-entries" else program

    for module_type in (bpf_attachment, module):
        monkeypatch.setattr(module_type, "attach", attach)
    monkeypatch.setattr(BpfAttachment, "wait_until_armed", lambda _: None)
    place = cast(Place, SimpleNamespace(point=POINT))
    attachment = BpfAttachment(cast(Guest, Switches()), probes()["bpf-kprobe-session"], place)
    attachment.set_handler("record")
    with attachment.separate_caller():
        program.runs = sum(runs.values())
        attachment.set_handler("noop")
    return attachment


def test_two_runs_of_a_hit_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may be in the function as the counting begins or ends: that is a hit, too."""
    ring = [*events(*[ENTRY, RETURN] * 100), *events(RETURN, pid=8)]
    attachment = session(monkeypatch, {7: 200, 8: 3}, ring)
    assert attachment.counts(CALLED) == (100, 2)
    assert attachment.recorded(CALLED, cast(Symbols, None), None) == (100, 1)


def test_an_entry_without_its_return_is_no_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EvidenceError, match=r"^199 runs are not a whole number of hits, which have 2 each$"):
        session(monkeypatch, {7: 199}).counts(CALLED)


def test_entries_that_a_session_missed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EvidenceError, match=r"^the kernel missed 2 of 100 returns\b") as raised:
        session(monkeypatch, {7: 196}).counts(CALLED)
    assert "maxactive" in raised.value.hint


@pytest.mark.parametrize("wrong", [[ENTRY] * 200, [RETURN] * 200, [ENTRY, RETURN] * 99 + [RETURN] * 2])
def test_one_event_of_each_hit_has_the_points_address(monkeypatch: pytest.MonkeyPatch, wrong: list[int]) -> None:
    attachment = session(monkeypatch, {7: 200}, events(*wrong))
    with pytest.raises(
        EvidenceError, match=r"^\d+ of 200 events have vfs_read's address; one of each hit must have it\n"
    ):
        attachment.recorded(CALLED, cast(Symbols, None), None)


# Which programs are at the point, or nowhere in particular, and which are elsewhere?


@pytest.mark.parametrize(
    ("sections", "here", "elsewhere"),
    [
        ([(1, "kprobe/vfs_read"), (2, "kretprobe/vfs_read")], [1, 2], []),
        ([(1, "kprobe/vfs_read"), (1, "kprobe/vfs_readv")], [1, 1], []),
        ([(1, "kprobe/vfs_readv"), (2, "kprobe/vfs_read")], [2], [1]),
        ([(1, "fsession/vfs_write")], [], [1]),
        ([(1, "kprobe-multi/"), (2, "tracepoint/sys_enter_write"), (3, "uprobe//tmp/workload+0x40")], [1, 2, 3], []),
    ],
)
def test_programs_are_told_from_those_elsewhere(
    sections: list[tuple[int, str]], here: list[int], elsewhere: list[int]
) -> None:
    programs = [UserBpfProgram(number, "f", section, cast(BpfProgram, None)) for number, section in sections]
    pair = placed(POINT, lambda: programs)
    assert [[user_bpf_program.number for user_bpf_program in part] for part in pair] == [here, elsewhere]


def test_a_function_that_takes_no_sleepable_program_has_a_hint() -> None:
    words = "vfs_read is not sleepable\nprocessed 0 insns (limit 1000000)\nbpfload: the object does not load: EINVAL\n"
    refused = refusal_of(probes()["bpf-fentry"], f"bpfload: once more, without the others\n{words}")
    assert refused.what.endswith("bpf-fentry: vfs_read is not sleepable")
    assert "leave .s out of the section" in refused.hint


# Is it seen in what a tool prints that a hit's events were lost, and does one that is busy have an end?


@pytest.mark.parametrize(
    "printed",
    [
        b"Lost 5 events\n",
        b"Attaching 1 probe...\n123 123 Lost 12 events\n123 ",
        b"lost 7 events on CPU #0\n",
        b"lost 0 events on CPU #0\nlost 7 events on CPU #1\nlost 0 events on CPU #2\n",
    ],
)
def test_lost_events_fail_the_cell(printed: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the buffer of opensnoop had no room .*: [Ll]ost (5|12|7) events$"):
        check_all_kept("opensnoop", printed)


def test_output_that_fills_its_file_is_not_believed() -> None:
    with pytest.raises(EvidenceError, match=r"^opensnoop prints more than 8 MB"):
        check_all_kept("opensnoop", b"x" * (8 << 20))


def test_what_was_kept_is_fine() -> None:
    check_all_kept("bpftrace", b"Attaching 1 probe...\n\n@[workload]: 1000\nlost 0 events\n")


class Busy:
    """A guest whose tool works for ever."""

    asked = 0

    def succeed(self, argv: Sequence[str], *, time_limit: float = 0.0) -> CommandResult:
        self.asked += 1 if argv[1] == "rest" else 0
        said = {"start": b"7\n", "rest": b"busy\n"}
        return CommandResult(tuple(argv), 0, said[argv[1]], b"")

    def run(self, argv: Sequence[str]) -> CommandResult:
        return CommandResult(tuple(argv), 0, b"still at it\n", b"")


@pytest.mark.parametrize("looks", [0, 3])
def test_a_busy_tool_has_the_time_of_its_cell(looks: int) -> None:
    left = [1.0] * looks

    def time_left() -> float:
        if not left:
            raise GuestHang("the cell's time limit of 4 s is over")
        return left.pop()

    guest = Busy()
    with pytest.raises(GuestHang, match="the cell's time limit"):
        ToolProcess(cast(Guest, guest), "busy", ["busy"], {}, time_left).attach()
    assert guest.asked == looks


class Leaving:
    """A guest whose tool ends on Ctrl-C; a process that it has started is there so often afterwards."""

    def __init__(self, looks: int) -> None:
        self.left, self.sent = looks, list[str]()

    def succeed(self, argv: Sequence[str], *, time_limit: float = 0.0) -> CommandResult:
        said = b""
        if argv[1] == "start":
            said = b"7\n"
        elif argv[1] == "rest":
            said = b"ended\n" if "2" in self.sent else b"waiting 3\n"
        elif argv[1] == "session" and self.left:
            self.left, said = self.left - 1, b"8\n"
        return CommandResult(tuple(argv), 0, said, b"")

    def run(self, argv: Sequence[str]) -> CommandResult:
        self.sent.append(argv[3])
        return CommandResult(tuple(argv), 0, b"", b"")

    def get(self, _: str, *, largest: int) -> bytes:
        return b""


def test_processes_of_a_tool_may_end_after_it() -> None:
    guest = Leaving(3)
    ToolProcess(cast(Guest, guest), "leaving", ["leaving"], {}, lambda: 1.0).end()
    assert (guest.left, "9" in guest.sent) == (0, False)


def test_a_tool_that_leaves_a_process_behind_has_not_ended() -> None:
    guest = Leaving(1000)
    with pytest.raises(EvidenceError, match=r"^leaving ends on Ctrl-C, and leaves processes behind"):
        ToolProcess(cast(Guest, guest), "leaving", ["leaving"], {}, lambda: 1.0).end()
    assert guest.sent[-1] == "9"


def test_a_tool_that_never_rests_is_given_up() -> None:
    with pytest.raises(EvidenceError, match=r"^busy never comes to rest") as raised:
        ToolProcess(cast(Guest, Busy()), "busy", ["busy"], {}, lambda: 1.0).attach()
    assert [*raised.value.detail] == ["still at it"]


@pytest.mark.parametrize(
    ("probe", "stack", "wrong"),
    [
        ("bpf-kprobe", [0x10, 0x20, 0x30], None),
        ("bpf-kprobe", [0x10, 0x20], None),
        ("bpf-kprobe", [0x10], "has 1 functions"),
        ("bpf-uprobe", [0x401000], None),
        ("bpf-uprobe", [0x401001, 0x401000], "does not begin at program:"),
        ("bpf-uprobe", [], "does not begin at program:"),
        ("bpf-uretprobe", [0x401234], None),
    ],
)
def test_a_traced_stack_is_of_its_place(
    monkeypatch: pytest.MonkeyPatch, probe: str, stack: list[int], wrong: str | None
) -> None:
    program = AtThePoint({7: 1})
    for module_type in (bpf_attachment, module):
        monkeypatch.setattr(module_type, "attach", lambda *_: program)
    user = UserPoint("f", 0, 0x401000, b"", program="/tmp/workload", file_offset=0x1000)
    point = user if probe.startswith("bpf-u") else POINT
    attachment = BpfAttachment(cast(Guest, Switches()), probes()[probe], cast(Place, SimpleNamespace(point=point)))
    attachment._stacks = {3: stack}
    with contextlib.nullcontext() if wrong is None else pytest.raises(EvidenceError, match=f"^stack 3 {wrong}"):
        attachment._check_stacks({3})
    with pytest.raises(EvidenceError, match=r"^the kernel has not traced a stack: -17$"):
        attachment._check_stacks({(1 << 64) - 17})


AN_OBJECT = BpfObject(Path("own.o"), Path("bpfload"), Path("bpfprobe"), line_source(""), {})


def test_a_program_is_not_refused_in_words_on_another(tmp_path: Path) -> None:
    """Where another program of the file is refused, the one that the row names is loaded once more, without it."""
    (tmp_path / "own.bpf.c").touch()
    kind = probe_kind(f"{tmp_path / 'own.bpf.c'} program=gone")
    log, again = "R0 invalid mem access\nprocessed 7 insns\n", "bpfload: once more, without the others\n"
    for words, what, detail in (
        (f"{log}{again}no such function\n", "gone cannot be attached", "no such function"),
        (
            f"libbpf: prog 'b': BPF program load failed: no\n{log}{again}<invalid BPF map reference>\n",
            "refuses b, in which .*gone may go on: R0 invalid mem access",
            "libbpf: prog 'b': BPF program load failed: no",
        ),
        ("libbpf: no\nbpfload: the object does not load: No space\n", "gone does not load", "libbpf: no"),
        (f"bad insn\nprocessed 1 insns\n{again}{log}", "refuses .*: R0 invalid", "R0 invalid mem access"),
        (log, "refuses .*: R0 invalid mem access", "R0 invalid mem access"),
    ):
        refused = CommandResult((), 1, b"", words.encode())
        guest = SimpleNamespace(succeed=lambda _: None, run=lambda _, refused=refused: refused)
        with pytest.raises(EvidenceError, match=what) as error:
            _Loader(cast("Guest", guest), kind, POINT, AN_OBJECT).attach()
        assert error.value.detail[0] == detail


def test_what_stands_in_the_way_of_programs_together_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.bpf.c").touch()
    kind = probe_kind(f"{tmp_path / 'own.bpf.c'} together=all")
    of_file, not_loaded = r"own\.bpf\.c\.together-all", "bpfload: the object does not load: No such process"
    for words, what in (
        (
            "bpfload: cannot attach on_x (kprobe/x): No such file or directory",
            "on_x of FILE cannot be attached to kprobe/x",
        ),
        (
            f"libbpf: prog 'on_x': failed to find kernel BTF type ID of 'x': -3\n{not_loaded}",
            "on_x of FILE does not load: failed to find kernel BTF type ID of 'x': -3",
        ),
        (
            f"libbpf: prog 'on_x': BPF program load failed: no\nR0 invalid mem access\nprocessed 7 insns\n{not_loaded}",
            "the verifier refuses on_x of FILE: R0 invalid mem access",
        ),
        (f"libbpf: prog 'on_x': BPF program load failed: no\n{not_loaded}", "on_x of FILE does not load"),
        (not_loaded, "FILE does not load"),
    ):
        refused = CommandResult((), 1, b"", words.encode())
        guest = SimpleNamespace(succeed=lambda _: None, run=lambda _, refused=refused: refused)
        with pytest.raises(EvidenceError, match="^" + what.replace("FILE", of_file)) as error:
            _Loader(cast("Guest", guest), kind, POINT, AN_OBJECT).attach()
        assert ("together=NAME,NAME" in error.value.hint) == ("on_x" in what)


def test_the_sections_of_many_programs_are_one_phrase() -> None:
    """On Linux 6.1, bpftrace has a kprobe, and so a section, of each function that a pattern matches."""
    guest = guest_with({}, printed=b"id=2 jited=57 code=9 runs=1 missed=0 translated=64 verified=8\n")
    each = [UserBpfProgram(n, f"p{n}", f"kprobe/function_{n}", BpfProgram(guest, f"/{n}")) for n in range(40)]
    hits = hits_at(guest, POINT, each)
    attached = UserBpfAttachment(guest, probes()["kprobe"], cast("Place", SimpleNamespace(point=POINT)), each, hits)
    sections = str(attached.facts()["bpf_section"])
    assert len(sections) <= 200
    assert sections.startswith("kprobe/function_0, kprobe/function_1, ")
    assert re.search(r"kprobe/function_\d+ \.\.\.$", sections)  # no name is cut


SAID = (
    b"code 1000 40\ncode 2000 8\n"
    b"line 1000 12 /src/x.bpf.c\t  int f(void)\nline 1010 0 /src/x.bpf.c\t\n"
    b"line 1020 14 /src/a b.h\tx = \xc3\xa9;\t// y\n"
    b"line 1020 15 /src/x.bpf.c\treturn x;\nline 1040 16 /src/x.bpf.c\tbehind the code\n"
    b"line 2000 7 /src/x.bpf.c\tg();\n"
)
LINES = [
    CodeLine(1000, 12, "/src/x.bpf.c", "int f(void)"),
    CodeLine(1010, 0, "/src/x.bpf.c"),
    CodeLine(1020, 15, "/src/x.bpf.c", "return x;"),
    CodeLine(1040),
]


def test_the_lines_of_the_functions_that_were_executed() -> None:
    assert code_lines(SAID, [1039]) == LINES
    assert code_lines(SAID, [1003, 2007]) == [*LINES, CodeLine(2000, 7, "/src/x.bpf.c", "g();"), CodeLine(2008)]
    assert code_lines(SAID, [999, 1040]) == []
    assert code_lines(b"", [1000]) == []
    assert code_lines(b"code 1000 40\n", [1000]) == []  # a kernel that shows no lines
    assert code_lines(SAID.replace(b"line 1020 15", b"line 1021 15"), [1000])[2].text == "x = é;\t// y"


@pytest.mark.parametrize(
    "said",
    [
        SAID[:-1],
        SAID + b"\n",
        SAID + b"code -1 40\n",
        SAID + b"code 18446744073709551615 40\n",
        SAID + b"line 1000 12 /src/x.bpf.c\n",
        SAID + b"line 1000 12 " + b"x" * 1001 + b"\t\n",
        SAID + b"line 1000 12 x\t" + b"x" * 201 + b"\n",
        SAID + b"line 1000 12 x\t\n" * (1 << 20),
    ],
)
def test_lines_that_the_loader_cannot_have_said_are_refused(said: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest does not say the source lines of BPF programs\b"):
        code_lines(said, [1000])


WORDS = st.sampled_from([b"line", b"code", b" ", b"\t", b"1000", b"40", b"/x.c", b"\xff", b"9" * 20, b"\n"])


@given(st.lists(WORDS, max_size=12).map(b"".join) | st.binary(max_size=60), st.lists(st.integers(0, 2000), max_size=4))
def test_lines_in_any_words_are_refused_or_make_a_profile(said: bytes, executed: list[int]) -> None:
    with contextlib.suppress(EvidenceError):
        lines = code_lines(SAID + said, executed)
        symbol = SymbolProfile(name="f", place="generated", address=0, instructions=())
        made = CellProfile(
            cell="m/k/p", arch="x86_64", calls=1, has_details=False, symbols=(symbol,), code_lines=tuple(lines)
        )
        assert CellProfile.model_validate_json(made.model_dump_json()) == made


def test_only_generated_code_is_asked_for_its_lines() -> None:
    kind = probes()["kprobe"]
    guest = guest_with({}, printed=SAID)
    loader = _Loader(guest, kind, POINT, AN_OBJECT)
    attached = ObjectAttachment(guest, kind, cast("Place", SimpleNamespace(point=POINT)), [], loader)

    def lined(place: str) -> tuple[CodeLine, ...]:
        symbol = SymbolProfile.model_validate(
            {"name": "f", "place": place, "address": 0, "instructions": (InstructionCount(1000, "90", 1),)}
        )
        profile = CellProfile(cell="m/k/p", arch="x86_64", calls=1, has_details=False, symbols=(symbol,))
        return attached.with_code_lines(profile).code_lines

    assert lined("generated") == tuple(LINES)
    assert lined("user") == ()


@pytest.mark.parametrize(
    ("more", "calls", "each"),
    [(0, 1000, 0), (-3, 1000, 0), (40, 1000, 0), (1990, 1000, 2), (400, 1000, None), (-400, 1000, None), (29, 30, 1)],
)
def test_hits_besides_those_that_the_clock_sees_are_as_many_of_each_call(
    more: int, calls: int, each: int | None
) -> None:
    assert hits_besides(more, calls) == each
