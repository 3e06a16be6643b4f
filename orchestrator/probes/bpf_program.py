# SPDX-License-Identifier: GPL-2.0-only
"""A BPF program in a guest, and the lab's witness, which counts hits beside it.

The guest's side is ``images/bpf/bpfprobe.c``.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

from orchestrator.catalog.probes import Context, ProbeKind, probes
from orchestrator.errors import CommandFailed, EvidenceError, PlaceRefused, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.probes.attachment import cleanup_after
from orchestrator.probes.events import ARGUMENTS
from orchestrator.probes.tracefs import TRACEFS
from orchestrator.results.parameters import BPF_INSTRUCTIONS, BPF_MACHINE_CODE, BPF_VERIFIED

TOOL = "/tmp/bpfprobe"  # noqa: S108 - in the guest
_FILE_SYSTEM = "/sys/fs/bpf"
_JIT = "/proc/sys/net/core/bpf_jit_enable"
_STATISTICS = "/proc/sys/kernel/bpf_stats_enabled"

_INFO = re.compile(
    r"id=(\d{1,10}) jited=(\d{1,7}) code=(\d{1,20}) runs=(\d{1,20}) missed=(\d{1,20}) translated=(\d{1,8}) "
    r"verified=(\d{1,8})\n"
)
_COUNTS = re.compile(r"count=(\d{1,20}) dropped=(\d{1,20})\n")
_ADDRESS = re.compile(r"\d{1,20}")
_HITS = re.compile(r"(\d{1,10}) (\d{1,20})")
_ATTACHED = re.compile(r"(\d{1,10}) ([a-z]{1,20}) (\d{1,10}) (\d{1,10}) (\d{1,10}) (\d{1,20}) (\S{1,255})")
_LOADED = re.compile(r"(\d{1,10}) (\d{1,4}) ([0-9a-f]{16}) (\S{1,15})")
_SYMBOL = re.compile(r"([0-9a-f]{1,16}) \w bpf_prog_[0-9a-f]{16}_(\S{1,128})(?:\s.*)?")
ENTRY_BYTES = 32
"""Bytes within which a program is entered: kernels with IBT or CFI may call it behind its first instruction, and a tail
call goes on behind its prologue (X86_TAIL_CALL_OFFSET of arch/x86/net/bpf_jit_comp.c)."""
_MOST_THREADS = 4096
"""MOST_THREADS of bpfprobe.c."""
_LONGEST = 1 << 18
"""Characters: MOST_FILES of attached.c, 1024, with a line of at most 256 each."""
_EVENT = struct.Struct(f"<QII{ARGUMENTS}Q")


@dataclass(frozen=True)
class AttachTarget:
    """Where a program of a ``kind`` is attached: a function, event or file, and an offset in bytes.

    ``semaphore`` is the file offset of a static probe point's counter, or 0.
    """

    kind: ProbeKind
    name: str
    offset: int = 0
    semaphore: int = 0

    @property
    def words(self) -> Sequence[str]:
        program = self.kind.program
        assert program is not None
        context = get_args(Context).index(program.context)
        facts = program.type, program.attach_type, program.link, program.flags, context
        return list(map(str, (*facts, self.name, self.offset, self.semaphore)))


class Attached(NamedTuple):
    """A program's number, how it is attached in the words of ``probes.yaml``, and where.

    ``images/bpf/attached.h`` explains the numbers. ``name`` is empty for one that is attached to many places, or where
    the kernel does not say.
    """

    number: int
    link: str
    attach_type: int
    flags: int
    places: int
    offset: int
    name: str

    @property
    def kind(self) -> str:
        """The probe kind that is attached like this; the link where the catalogue has none."""
        like = self.link, self.attach_type, self.flags
        programs = ((kind.name, kind.program) for kind in probes().values() if kind.program is not None)
        return next(
            (name for name, program in programs if (program.link, program.attach_type, program.flags) == like),
            self.link,
        )


class LoadedProgram(NamedTuple):
    """A program that a process has loaded: its number, type (enum bpf_prog_type), and 15 letters of its name."""

    number: int
    type: int
    name: str


class ProgramInfo(NamedTuple):
    """The kernel's data on a program: bytes of machine code (0: interpreted), runs and misses under statistics.

    ``code`` is the address that is called to run it: the machine code's, or the interpreter's. ``translated`` are the
    bytes of its BPF instructions, as the verifier has rewritten them; ``verified`` the instructions that it has walked.
    """

    number: int
    jited: int
    code: int
    runs: int
    missed: int
    translated: int
    verified: int

    def executed_in(self, executed: Mapping[int, int]) -> Mapping[int, int]:
        """What the program's own code has of how often instructions at addresses were executed."""
        return {address: times for address, times in executed.items() if 0 <= address - self.code < self.jited}

    def runs_among(self, executed: Mapping[int, int]) -> int:
        """How often it was run. Kernels with IBT or CFI may call it behind its first instruction."""
        code = self.executed_in(executed)
        return code[min(code)] if code else 0

    def entered_among(self, executed: Mapping[int, int]) -> int:
        """How often it was entered at its start, also by tail calls: the rest of its code may be executed in part."""
        entry = [address for address in executed if 0 <= address - self.code < min(self.jited, ENTRY_BYTES)]
        return executed[min(entry)] if entry else 0


class BpfEvent(NamedTuple):
    """An event of the ring: guest nanoseconds, the thread's ID, and the context's arguments."""

    nanoseconds: int
    pid: int
    args: tuple[int, ...]


class BpfProgram:
    """An attached program, identified by the folder in which it is pinned."""

    def __init__(self, guest: Guest, folder: str) -> None:
        self._guest = guest
        self.folder = folder

    def info(self) -> ProgramInfo:
        return ProgramInfo(*self._numbers("info", _INFO, "is"))

    def counts(self) -> tuple[int, int]:
        count, dropped = self._numbers("counts", _COUNTS, "has counted")
        return count, dropped

    def hits(self) -> Mapping[int, int]:
        matches = _matched(self._said("hits"), _HITS, "who hit the BPF program")
        hits = {int(match[1]): int(match[2]) for match in matches}
        if len(hits) != len(matches) or len(hits) >= _MOST_THREADS:
            raise _unsaid("who hit the BPF program", [match[0] for match in matches])
        return hits

    def events(self) -> Sequence[BpfEvent]:
        content = self._guest.succeed([TOOL, "events", self.folder]).stdout
        if len(content) % _EVENT.size:
            raise EvidenceError(f"the ring's events have {len(content)} bytes, not a whole number of events")
        return [BpfEvent(ns, pid, tuple(args)) for ns, _, pid, *args in _EVENT.iter_unpack(content)]

    def stack(self, number: int) -> Sequence[int]:
        """The addresses of a stack that the program has traced, innermost first. Raises EvidenceError if it has not."""
        finished = self._guest.run([TOOL, "stack", self.folder, str(number)])
        if finished.status != 0:
            detail = finished.stderr.decode(errors="replace").splitlines()
            raise EvidenceError(f"the BPF program has not traced stack {number}", detail=detail)
        return [int(match[0]) for match in _matched(finished.text, _ADDRESS, "which stacks were traced")]

    def empty(self) -> None:
        self._guest.succeed([TOOL, "empty", self.folder])

    def detach(self) -> None:
        """Remove it, and wait until it is gone: the kernel may release its link later, and on another CPU."""
        number = self.info().number
        self._guest.succeed(["rm", "-r", self.folder])
        wait_until_gone(self._guest, [number])

    def _said(self, command: str) -> str:
        return self._guest.succeed([TOOL, command, self.folder]).text

    def _numbers(self, command: str, line: re.Pattern[str], what: str) -> list[int]:
        match = line.fullmatch(self._said(command))
        if match is None:
            raise EvidenceError(f"the guest does not say what its BPF program {what}")
        return [int(number) for number in match.groups()]


def infos(guest: Guest, programs: Sequence[BpfProgram]) -> Sequence[ProgramInfo]:
    """The kernel's data on programs, asked by one command. Raises EvidenceError for an unreadable answer."""
    script = 'tool=$1; shift; for folder; do "$tool" info "$folder" || exit; done'
    said = guest.succeed(["sh", "-c", script, "sh", TOOL, *(program.folder for program in programs)]).text
    matches = list(map(_INFO.fullmatch, said.splitlines(keepends=True)))
    if len(matches) != len(programs) or None in matches:
        raise EvidenceError("the guest does not say what its BPF programs are")
    return [ProgramInfo(*map(int, match.groups())) for match in matches if match is not None]


_INSTRUCTION_BYTES = 8
"""sizeof(struct bpf_insn) of include/uapi/linux/bpf.h."""


def program_facts(programs: Iterable[BpfProgram]) -> Mapping[str, int]:
    """The parameters of a cell with these programs: their sizes, and what the verifier walked."""
    each = [program.info() for program in programs]
    verified = sum(info.verified for info in each)  # 0 on kernels before Linux 5.16 (commit aba64c7da983)
    return {
        **({BPF_VERIFIED: verified} if verified else {}),
        BPF_INSTRUCTIONS: sum(info.translated for info in each) // _INSTRUCTION_BYTES,
        BPF_MACHINE_CODE: sum(info.jited for info in each),
    }


def _matched(said: str, line: re.Pattern[str], what: str) -> Sequence[re.Match[str]]:
    lines = said[:_LONGEST].splitlines()
    matches = [match for match in map(line.fullmatch, lines) if match]
    if len(matches) != len(lines) or len(said) > _LONGEST:
        raise _unsaid(what, lines)
    return matches


def _unsaid(what: str, lines: Sequence[str]) -> EvidenceError:
    return EvidenceError(f"the guest does not say {what}: {lines[:3]}"[:200])


def bring(guest: Guest, tool: Path) -> None:
    """Copy bpfprobe into the guest, and mount the file system for pinning."""
    guest.put(tool, TOOL, mode=0o755)
    if f" {_FILE_SYSTEM} bpf " not in guest.get("/proc/mounts").decode(errors="replace"):
        guest.succeed(["mount", "-t", "bpf", "bpf", _FILE_SYSTEM])


def attach(guest: Guest, name: str, program: str, target: AttachTarget) -> BpfProgram:
    """Load one of bpfprobe's programs and attach it. Raises EvidenceError or PlaceRefused with the kernel's words."""
    folder = f"{_FILE_SYSTEM}/{name}"
    guest.succeed(["mkdir", folder])
    try:
        guest.succeed([TOOL, "attach", folder, program, *target.words])
    except CommandFailed as error:
        guest.succeed(["rm", "-r", folder])
        said = str(error)
        raise (EvidenceError if "refuses the program" in said else PlaceRefused)(
            f"the kernel refuses a BPF program at {target.name}", detail=said.splitlines()
        ) from None
    return BpfProgram(guest, folder)


def pinned_links(guest: Guest) -> int:
    """The number of the lab's attached programs: a program stays attached as long as its link is pinned."""
    links = guest.succeed(["find", _FILE_SYSTEM, "-path", f"{_FILE_SYSTEM}/lab-*/link"]).text
    return len(links.splitlines())


def pinned(guest: Guest, name: str, number: int) -> BpfProgram:
    """Pin a program that another process has loaded, by the kernel's number."""
    folder = f"{_FILE_SYSTEM}/{name}"
    guest.succeed(["mkdir", folder])
    guest.succeed([TOOL, "pin", folder, str(number)])
    return BpfProgram(guest, folder)


def attached_by(guest: Guest, process: int) -> Sequence[Attached]:
    """What a process has attached. Raises EvidenceError for an unreadable answer."""
    return attached_in(guest.succeed([TOOL, "attached", str(process)]).text)


def attached_in(said: str) -> Sequence[Attached]:
    """What bpfprobe has said of a process. Raises EvidenceError for an unreadable answer."""
    matches = _matched(said, _ATTACHED, "what is attached")
    return [
        Attached(
            int(match[1]),
            match[2],
            int(match[3]),
            int(match[4]),
            int(match[5]),
            int(match[6]),
            match[7].removeprefix("-"),
        )
        for match in matches
    ]


def attached_as(attached: Iterable[Attached], perf_events: int = 0) -> str:
    """How programs are attached, and how many at perf events: ``bpf-kprobe, bpf-kprobe-multi (3 places)``."""
    places = Counter({"perf event": perf_events} if perf_events else {})
    for each in attached:
        places[each.kind] += each.places
    return ", ".join(kind if number == 1 else f"{kind} ({number} places)" for kind, number in sorted(places.items()))


def loaded_by(guest: Guest, process: int) -> Sequence[LoadedProgram]:
    """What a process has loaded, and has open or linked. Raises EvidenceError for an unreadable answer."""
    matches = _matched(guest.succeed([TOOL, "loaded", str(process)]).text, _LOADED, "what is loaded")
    by_number = {int(match[1]): LoadedProgram(int(match[1]), int(match[2]), match[4]) for match in matches}
    return [by_number[number] for number in sorted(by_number)]


def whole_names(guest: Guest, addresses: Iterable[int]) -> Mapping[int, str]:
    """The names of programs by the address of their code; the kernel's list of symbols has them whole."""
    listed = guest.run(["grep", " bpf_prog_", "/proc/kallsyms"]).text[: 4 * _LONGEST]
    names = {int(match[1], 16): match[2] for match in map(_SYMBOL.fullmatch, listed.splitlines()) if match}
    return {address: names[address] for address in addresses if address in names}


def wait_until_gone(guest: Guest, numbers: Sequence[int]) -> None:
    """Wait until the kernel has none of these programs any more. Raises EvidenceError if one stays."""
    finished = guest.run([TOOL, "gone", *map(str, numbers)])
    if finished.status != 0:
        raise EvidenceError(
            "BPF programs are still in the kernel", detail=finished.stderr.decode(errors="replace").splitlines()
        )


def compile_programs(guest: Guest, *, on: bool) -> bool:
    """Have the kernel compile or interpret programs; returns the previous setting.

    Kernels without CONFIG_NET, CONFIG_SYSCTL or CONFIG_BPF_JIT have no setting (net/core/sysctl_net_core.c): what they
    do each program tells. Raises UnsupportedError for a setting that does not exist or does not change.
    """
    if guest.run(["test", "-e", _JIT]).status != 0:
        if not on:
            raise UnsupportedError(f"this kernel has no setting to interpret BPF programs: {_JIT} (CONFIG_NET)")
        return True
    before = kernel_value(guest, _JIT)
    value = "1" if on else "0"
    if before != value:
        guest.run(["sh", "-c", 'echo "$0" > "$1"', value, _JIT])
        if kernel_value(guest, _JIT) != value:
            raise UnsupportedError(f"the kernel's setting of the BPF compiler, {_JIT}, stays at {before[:20]!r}")
    return before != "0"


_PRINTK = f"{TRACEFS}/events/bpf_trace/bpf_trace_printk/enable"
"""An event of the kernel's own, since Linux 5.9."""


@contextlib.contextmanager
def restoring_printk(guest: Guest) -> Iterator[None]:
    """Leave the event of bpf_printk() as it was.

    The verifier enables it for each program that calls bpf_printk(), and nothing disables it again
    (__set_printk_clr_event() of kernel/trace/bpf_trace.c): the kernel's text stays patched at its tracepoint and, for
    the names of processes, at those of the scheduler.
    """
    before = _switch(guest)

    def restore() -> None:
        if before is not None and _switch(guest) != before:
            guest.put(before.encode(), _PRINTK)

    with cleanup_after(restore):
        yield


def _switch(guest: Guest) -> str | None:
    finished = guest.run(["cat", _PRINTK])
    return finished.text.strip() if finished.status == 0 and finished.text.strip() in ("0", "1") else None


def keep_statistics(guest: Guest, *, on: bool) -> None:
    """Switch the kernel's run statistics, which cost instructions. Raises EvidenceError if they stay on."""
    guest.put(b"1" if on else b"0", _STATISTICS)
    if not on and kernel_value(guest, _STATISTICS) != "0":
        raise EvidenceError("the kernel's setting of the BPF statistics does not stay at 0")
