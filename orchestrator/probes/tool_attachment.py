# SPDX-License-Identifier: GPL-2.0-only
"""A tool in a guest that attaches its programs itself, measured whole: what a call costs more with the tool attached.

Its programs may be anywhere, and a call may run them unequally often. The kernel counts the runs of each while calls
are made, and QEMU, where there is a profile, how often the timed calls enter its code. By either count the programs
must run as often as there are calls.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from orchestrator.catalog.probes import Handler, ProbeKind, is_recording
from orchestrator.catalog.tools import BPFTRACE_PROGRAM, SCRIPT_SUFFIX, TOOL_FOLDER, TOOLS_IMAGE, ToolCommand
from orchestrator.errors import (
    CommandFailed,
    EvidenceError,
    GuestError,
    GuestHang,
    LabError,
    NotEntered,
    UnsupportedError,
)
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_scripts import lab_script
from orchestrator.guest.machine import HEADERS
from orchestrator.plain_text import counted, cut, shown
from orchestrator.probes import attachment, bpf_program
from orchestrator.probes.attachment import Reader
from orchestrator.probes.bpf_attachment import attaching_programs
from orchestrator.probes.bpf_program import (
    Attached,
    BpfProgram,
    LoadedProgram,
    ProgramInfo,
    attached_as,
    keep_statistics,
)
from orchestrator.probes.evidence import Observation
from orchestrator.probes.map_trial import AttendedMapTrial
from orchestrator.probes.place import Place, PlacedAttachment
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tool_process import ToolProcess
from orchestrator.results.contract import LONGEST_PHRASE, ProgramRuns
from orchestrator.results.parameters import ATTACHED, BPF_SECTION, BPFTRACE, TOOL_PROGRAM

_PERF_EVENT = 7
"""BPF_PROG_TYPE_PERF_EVENT of enum bpf_prog_type."""
_PINS = "/sys/fs/bpf"
_OF_LAB = f"{_PINS}/lab-"
_OTHERS = 50
"""Runs more in one pass than in another that may be those of the guest's agent: a command makes some ten calls more."""
_SHOWN = 6
_TRIED_CALLS = (16, 4, 1)
"""Calls by which room is measured: fewer where more of them fill a buffer by half, and may have overflown it."""
_SHARE_OF_BUFFER = 4
"""A batch's calls fill at most a quarter of a buffer: warming calls, and one that wakes the reader, come before it."""
_LARGEST_BUFFER_PAGES = 1 << 14
_INCLUDE = "^[[:space:]]*#[[:space:]]*include"
_MEMORY = re.compile(r"^MemAvailable:\s+(\d{1,12}) kB$.*^(\d{1,5})\n\Z", re.MULTILINE | re.DOTALL)
_VERSION = "bpftrace v"


class MeasuredProgram(NamedTuple):
    """A program of a tool, how it is attached, and where it is pinned meanwhile."""

    loaded: LoadedProgram
    attached: Sequence[Attached]
    program: BpfProgram

    @property
    def is_at_perf_event(self) -> bool:
        """Whether it is at a perf event, of which the kernel does not say what it is."""
        return not self.attached and self.loaded.type == _PERF_EVENT

    @property
    def places(self) -> str:
        """How and where the kernel says that it is attached: ``bpf-kprobe vfs_read``; empty if it does not say."""
        if self.is_at_perf_event:
            return "perf event"
        names = dict.fromkeys(f"{each.kind} {each.name}".strip() for each in self.attached)
        return ", ".join(shown([*names], _SHOWN, "{} more"))


class ToolAttachment(PlacedAttachment):
    """The programs of a tool, attached by ``tool_attached``."""

    def __init__(self, guest: Guest, kind: ProbeKind, place: Place, process: ToolProcess, started: str) -> None:
        super().__init__(guest, kind, place)
        self._process, self._started = process, started
        self._programs = pinned_programs(guest, process)
        self._trial = AttendedMapTrial(guest, (measured.program for measured in self._programs))
        self._trial.owner = process.name
        self._before: Sequence[int] = ()
        self._runs: Sequence[int] = ()
        self._idle: Sequence[int] = ()
        self._of_calls: Sequence[int] = ()
        self._timed: Sequence[Fraction] = ()

    def observe(self) -> Observation:
        for each, info in zip(self._programs, self._infos(), strict=True):
            if not info.jited:
                raise EvidenceError(f"the BPF program {each.loaded.name} is interpreted, and not compiled")
        return self._place.observe()

    def set_handler(self, handler: Handler) -> None:
        """The programs always do the same. Behind ``count``, ``noop`` ends the count of their runs."""
        if is_recording(handler):
            raise UnsupportedError("a tool's programs have no handlers of the lab's, so they cannot record")
        if handler == "noop" and self._before:
            self._runs = [now - before for now, before in zip(self._now(), self._before, strict=True)]

    @contextlib.contextmanager
    def separate_caller(self) -> Iterator[None]:
        """Count runs. The tool reads what is there before, and is stopped meanwhile."""
        self._process.read()
        with self._trial.trying():
            keep_statistics(self._guest, on=True)
            self._before = self._now()
            yield
            self._before = ()
        keep_statistics(self._guest, on=False)

    def counts(self, called: attachment.Called) -> tuple[int, int | None]:
        """The calls, which are hits of the tool if its programs have run as often; others are not told apart.

        Raises EvidenceError where calls have run none, also where others have: other tasks, or what is not timed. So it
        does where a program ran less often than QEMU has counted, or a map had no room for what calls put in.
        """
        if not called.calls:
            self._idle = self._runs
            return 0, None
        idle = self._idle or [0] * len(self._runs)
        self._of_calls = [max(0, runs - besides) for runs, besides in zip(self._runs, idle, strict=True)]
        total, noise = sum(self._of_calls), min(_OTHERS, called.calls // 2)
        timed = sum(self._timed) * called.calls if self._timed else total
        if min(total, timed) < called.calls - noise:
            ran = f"ran {total} times" if total > _OTHERS else "did not run"
            within = f", {float(timed):.4g} of them within what is timed" if timed < total else ""
            raise EvidenceError(
                f"{counted(called.calls, 'call')} were made, and the programs of {self._process.name} {ran}{within}",
                hint="make calls that reach what it is attached to",
                detail=[f"it is attached: {places}" for each in self._programs if (places := each.places)][:_SHOWN],
            )
        for each, runs, of_call in zip(self._programs, self._of_calls, self._timed or (), strict=False):
            if runs + noise < of_call * called.calls:
                entered = f"QEMU has counted {float(of_call):.4g} a timed call"
                what = f"ran {runs} times in {counted(called.calls, 'call')} by the kernel's count, and {entered}"
                raise EvidenceError(f"{self._process.name}'s program {each.loaded.name} {what}")
        self._trial.check(called.calls, total)
        return called.calls, None

    def learn(self, executed: Mapping[int, int], calls: int) -> None:
        self._timed = [Fraction(info.entered_among(executed), calls) for info in self._infos()]

    def recorded(self, called: attachment.Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        raise AssertionError("a tool's programs do not record")

    def program_runs(self) -> Sequence[ProgramRuns]:
        """The runs of each program in the counted calls, by the kernel's own count, and where its code is."""
        runs, infos = self._of_calls or [0] * len(self._programs), self._infos()
        names = bpf_program.whole_names(self._guest, [info.code for info in infos])
        return [
            ProgramRuns(
                name=cut(names.get(info.code, each.loaded.name), LONGEST_PHRASE),
                attached=cut(each.places, LONGEST_PHRASE),
                runs=times,
                address=f"{info.code:#x}",
                size=info.jited,
            )
            for each, times, info in zip(self._programs, runs, infos, strict=True)
        ]

    def facts(self) -> Mapping[str, int | str]:
        """Where its programs are, their sizes, what was started, and how they are attached, as the kernel says."""
        self._process.check_same()
        places = cut(", ".join(dict.fromkeys(filter(None, (each.places for each in self._programs)))), LONGEST_PHRASE)
        return {
            BPF_SECTION: places,
            **bpf_program.program_facts([each.program for each in self._programs]),
            **self._trial.facts(),
            TOOL_PROGRAM: self._started,
            **version_facts(self._guest, self._started),
            ATTACHED: attached_as(self._process.attached, sum(each.is_at_perf_event for each in self._programs)),
        }

    def reader(self, call: Callable[[int], object]) -> Reader | None:
        return reader_beside(self._process, call)

    def _now(self) -> Sequence[int]:
        return [info.runs for info in self._infos()]

    def _infos(self) -> Sequence[ProgramInfo]:
        return bpf_program.infos(self._guest, [each.program for each in self._programs])


def reader_beside(process: ToolProcess, call: Callable[[int], object]) -> Reader | None:
    """The tool as a reader of what calls leave; None where they leave nothing.

    ``call`` makes so many calls. Raises EvidenceError where a buffer has no room for one.
    """
    for calls in _TRIED_CALLS:
        process.read()
        before = process.rings()
        if not before:
            return None
        call(calls)
        after = process.rings()
        if [ring.size for ring in after] != [ring.size for ring in before]:
            raise EvidenceError(f"{process.name} has other buffers after some calls than before")
        # A ring buffer drops silently what it has no room for.
        if all(2 * ring.used <= ring.size for ring in after):
            break
    process.read()
    left = [max(0, now.used - was.used) for was, now in zip(before, after, strict=True)]
    fewest = [ring.size * calls // (_SHARE_OF_BUFFER * used) for ring, used in zip(after, left, strict=True) if used]
    if not fewest:
        return None
    if min(fewest) < 1:
        raise EvidenceError(f"a call leaves more for {process.name} to read than a quarter of its buffer holds")
    return Reader(process.pid, min(fewest))


def pinned_programs(guest: Guest, process: ToolProcess) -> Sequence[MeasuredProgram]:
    """The programs of a tool, each pinned by the lab so that it can be asked, until ``attaching_programs`` ends."""
    attached: dict[int, list[Attached]] = {}
    for each in process.attached:
        attached.setdefault(each.number, []).append(each)
    loaded = {each.number: each for each in process.loaded}
    numbers = sorted({*attached, *loaded})
    return [
        MeasuredProgram(
            loaded.get(number, LoadedProgram(number, 0, "-")),
            attached.get(number, []),
            bpf_program.pinned(guest, f"lab-own-{number}", number),
        )
        for number in numbers
    ]


def version_facts(guest: Guest, started: str) -> Mapping[str, str]:
    """The version of bpftrace, if that is what was started, or takes the script that was."""
    program = BPFTRACE_PROGRAM if started.endswith(SCRIPT_SUFFIX) else started
    if Path(program).name != BPFTRACE_PROGRAM:
        return {}
    said = guest.run([program, "--version"]).text.split("\n")[0].strip()
    return {BPFTRACE: said.removeprefix(_VERSION)[:60] if said.startswith(_VERSION) else "unknown"}


def _environment(guest: Guest, command: ToolCommand, started: str) -> Mapping[str, str]:
    """What a tool finds in its environment besides the usual.

    Maps of bpftrace have as many keys as by its own default, in the variables of its versions before and after 0.20.
    Its buffers are a quarter of the free memory, or its own 64 pages for each CPU: join() takes 16 KB a hit. What
    compiles finds the kernel's headers, of bpftrace a script that includes one.
    """
    scripts = [word for word in (started, *command.argv[1:]) if word.endswith(SCRIPT_SUFFIX)]
    if command.program != BPFTRACE_PROGRAM and not scripts:
        return {"BCC_KERNEL_SOURCE": HEADERS} if guest.run(["test", "-d", HEADERS]).status == 0 else {}
    said = _MEMORY.search(guest.run(["sh", "-c", "cat /proc/meminfo; nproc"]).text)
    free, cpus = (0, 1) if said is None else (int(said[1]), int(said[2]))
    pages = 64
    while pages < _LARGEST_BUFFER_PAGES and pages * 2 * 4 * 4 * max(1, cpus) <= free:
        pages *= 2
    keys = dict.fromkeys(("BPFTRACE_MAP_KEYS_MAX", "BPFTRACE_MAX_MAP_KEYS"), "4096")
    includes = bool(scripts) and guest.run(["grep", "-qsE", _INCLUDE, "--", *scripts]).status == 0
    headers = dict.fromkeys(("BPFTRACE_KERNEL_SOURCE", "BPFTRACE_KERNEL_BUILD"), HEADERS) if includes else {}
    return {**keys, **headers, "BPFTRACE_PERF_RB_PAGES": str(pages)}


def _started_program(guest: Guest, command: ToolCommand) -> str:
    """The path of the program that the command starts. Raises EvidenceError for one that the image has not."""
    first = command.argv[0]
    if command.file is not None:
        guest.succeed(["mkdir", "-p", TOOL_FOLDER])
        brought = next(word for word in command.argv if word.startswith(f"{TOOL_FOLDER}/"))
        guest.put(command.file, brought, mode=0o755)
        if first == brought:
            _check_libraries(guest, command)
            return first
    search = guest.run(["sh", "-c", lab_script("find-tool.sh").decode(), "sh", first])
    path = search.text.strip().split("\n")[-1]
    if search.status != 0 or not path.startswith("/"):
        raise EvidenceError(f"the guest's image has no {first}", hint=_other_image(guest))
    return path


def _other_image(guest: Guest) -> str:
    recipe, root = "add its package to a recipe of yours", guest.machine.root
    if root is not None and root.name == TOOLS_IMAGE:
        return recipe
    return f"set image: {TOOLS_IMAGE}, which has those of libbpf-tools, bpfcc-tools and bpftrace, or {recipe}"


def _check_libraries(guest: Guest, command: ToolCommand) -> None:
    if command.is_static:
        return
    said = guest.run(["ldd", command.argv[0]]).text
    missing = [line.split()[0] for line in said.splitlines() if line.rstrip().endswith("not found") and line.split()]
    if missing:
        named = ", ".join(shown(missing, _SHOWN, "{} more"))
        hint = "add the package that has it to a recipe of yours, or link the tool with -static"
        raise EvidenceError(f"{command.program} needs {named}, which the guest's image has not", hint=hint)


@contextlib.contextmanager
def running_tool(
    guest: Guest, command: ToolCommand, time_left: Callable[[], float]
) -> Iterator[tuple[ToolProcess, str]]:
    """A tool that has attached its programs, and what was started; it is stopped, and ends by Ctrl-C at the end.

    Raises EvidenceError with its words if it refuses, or does not end, or if the image lacks it.
    """
    started = _started_program(guest, command)
    argv = [started, *command.argv[1:]]
    process = ToolProcess(guest, command.program, argv, _environment(guest, command, started), time_left)
    try:
        process.attach()
        try:
            yield process, started
        except (NotEntered, UnsupportedError):
            # The guest stays in use, so that it must end as usual.
            process.end()
            raise
        process.end()
    except (NotEntered, UnsupportedError):
        raise
    except LabError as error:
        # Report the first error. A guest in trouble gets no commands.
        if isinstance(error, GuestError):
            raise
        if process.has_attached and not error.detail and process.is_gone():
            raise process.ended() from error
        with contextlib.suppress(CommandFailed, EvidenceError, GuestHang):
            process.kill()
        raise


def pins_in(guest: Guest) -> frozenset[str]:
    """What others than the lab have pinned."""
    listed = guest.succeed(["find", _PINS, "-mindepth", "1"]).text.splitlines()
    return frozenset(path for path in listed if not path.startswith(_OF_LAB))


def check_left_nothing(guest: Guest, process: ToolProcess, pins: frozenset[str]) -> None:
    """Raise EvidenceError if the kernel still has a program of a tool that has ended, or a pin that it has made."""
    left = sorted(pins_in(guest) - pins)
    if left:
        raise EvidenceError(f"{process.name} leaves pins behind: {', '.join(shown(left, _SHOWN, '{} more'))}")
    numbers = sorted({*(each.number for each in process.attached), *(each.number for each in process.loaded)})
    try:
        bpf_program.wait_until_gone(guest, numbers)
    except EvidenceError as error:
        raise EvidenceError(f"{process.name} leaves programs in the kernel behind", detail=error.detail) from None


@contextlib.contextmanager
def tool_attached(
    guest: Guest, kind: ProbeKind, tool: Path, point: ProbePoint, symbols: Symbols, time_left: Callable[[], float]
) -> Iterator[ToolAttachment]:
    """Let a tool attach its programs; end it, and prove that the kernel has none of them. ``tool``: bpfprobe.

    ``time_left`` returns the host seconds that the cell has left, or raises GuestHang if none. Raises EvidenceError
    with the tool's words if it refuses, if the image lacks it, or if the original bytes are not restored at the end.
    """
    assert kind.tool is not None
    with contextlib.ExitStack() as proof, contextlib.ExitStack() as stack:
        stack.enter_context(bpf_program.restoring_printk(guest))
        place = stack.enter_context(attaching_programs(guest, kind, tool, point, symbols))
        pins = pins_in(guest)
        with running_tool(guest, kind.tool, time_left) as (process, started):
            proof.enter_context(attachment.cleanup_after(lambda: check_left_nothing(guest, process, pins)))
            yield ToolAttachment(guest, kind, place, process, started)
