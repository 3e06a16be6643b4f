# SPDX-License-Identifier: GPL-2.0-only
"""BPF programs at a probe point of a guest: attached, counted, detached, proved gone.

They are the lab's, a user's object, or a bpftrace one-liner. While hits are counted, a witness program counts them by
thread and the kernel counts the runs of each program: the program must have run at every hit of the witness.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

from orchestrator.artifacts.bpf_objects import BpfObject
from orchestrator.catalog.bpftrace_text import prints
from orchestrator.catalog.probes import IMAGE, Handler, ProbeKind, is_recording, probes
from orchestrator.errors import (
    CommandFailed,
    EvidenceError,
    GuestError,
    GuestHang,
    LabError,
    UnsupportedError,
)
from orchestrator.guest.channel import lab_script
from orchestrator.guest.console import plain_lines
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import cut
from orchestrator.probes import attachment, bpf_program
from orchestrator.probes.bpf_hits import ProgramHits, UserBpfProgram
from orchestrator.probes.bpf_program import Attached, BpfEvent, BpfProgram, Target, Witness, attach
from orchestrator.probes.events import ARGUMENTS
from orchestrator.probes.evidence import MISSED_RETURNS, Observation, check_untouched
from orchestrator.probes.map_trial import AttendedMapTrial, MapTrial
from orchestrator.probes.place import Place, PlacedAttachment, UserPoint, place_of
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tracefs import BPF_TRAMPOLINE, check_trampoline, event_number
from orchestrator.results.parameters import ATTACHED, BPF_SECTION, BPF_SIZED, BPF_STACK, BPFTRACE
from orchestrator.results.stored_profile import CellProfile, CodeLine


@contextlib.contextmanager
def attaching_programs(
    guest: Guest, kind: ProbeKind, tool: Path, point: ProbePoint, symbols: Symbols
) -> Iterator[Place]:
    """Allow programs to be attached at an untouched place, with bpfprobe in the guest; remove them all at the end.

    Yields the place. Raises EvidenceError if the original bytes are not there before, or not restored at the end.
    """
    place = place_of(guest, kind, point, symbols)
    check_untouched(place.point, place.observe(), "before attaching")
    attachment.allow_optimisation(guest, kind)
    bpf_program.bring(guest, tool)
    bpf_program.keep_statistics(guest, on=False)
    compiled_before = bpf_program.compile_programs(guest, on=kind.program is None or kind.program.is_compiled)

    def remove() -> None:
        guest.succeed(["sh", "-c", "rm -rf /sys/fs/bpf/lab-*"])
        bpf_program.keep_statistics(guest, on=False)
        attachment.wait_until_untouched(guest, kind, place.point, place.observe, "after detaching the program")
        bpf_program.compile_programs(guest, on=compiled_before)

    with attachment.cleanup_after(remove):
        yield place


_NAMES = ("lab-a", "lab-b")
"""Folders, used alternately: a program is attached before the one that it replaces is detached."""


_MOST_STACKS = 8192  # as in images/bpf/bpfprobe.c


class BpfAttachment(PlacedAttachment):
    """The lab's BPF program, attached by ``bpf_attached``."""

    def __init__(self, guest: Guest, kind: ProbeKind, place: Place) -> None:
        super().__init__(guest, kind, place)
        assert kind.program is not None
        self._facts = kind.program
        self._target = target_of(guest, kind, place.point)
        self._handler: Handler = "noop"
        self._turn = 0
        self._program = attach(guest, _NAMES[0], "noop", self._target)
        self._witness = Witness(guest, self._target)
        self._events: Sequence[BpfEvent] = ()
        self._stacks: Mapping[int, Sequence[int]] = {}
        self._entries: Mapping[int, int] = {}

    def observe(self) -> Observation:
        info = self._program.info()
        if (info.jited > 0) != self._facts.is_compiled:
            raise EvidenceError(
                f"the BPF program at {self.point.name} is {'compiled' if info.jited else 'interpreted'}, "
                f"and for {self._kind.name} it must not be"
            )
        if is_recording(self._handler):
            self._check_none_dropped()
        seen = self._place.observe()
        if self._kind.mechanism != "direct" or seen.traced is None or seen.jump_target is None:
            return seen
        check_trampoline(self._guest, seen.traced, self.point.address + seen.jump_target, info.code)
        return replace(seen, called=BPF_TRAMPOLINE)

    def set_handler(self, handler: Handler) -> None:
        """Exchange the program, the new one first. Counting again keeps the program and resets its counts."""
        if self._witness.is_counting:
            if handler == "noop":
                self._bear_witness()
            elif self._handler != "noop":
                self._program.empty()
        elif handler != self._handler:
            self._exchange(handler)

    def facts(self) -> Mapping[str, int | str]:
        return bpf_program.program_facts([self._program])

    def renewal(self) -> Callable[[], None] | None:
        """The ring has room for 58,000 events, and is not read meanwhile."""
        return self._program.empty if is_recording(self._handler) else None

    @contextlib.contextmanager
    def separate_caller(self) -> Iterator[None]:
        """A witness counts by process while the kernel counts the program's runs; for returns also the entries."""
        entries = None
        if self._facts.entries is not None:
            target = target_of(self._guest, probes()[self._facts.entries], self.point)
            entries = attach(self._guest, "lab-entries", "witness", target)
        self._witness.begin([("the BPF program", self._program)])
        yield
        self._witness.detach()
        if entries is not None:
            self._entries = entries.hits()
            entries.detach()
        if isinstance(self.point, UserPoint):
            self._exchange(self._handler)
        else:
            self.wait_until_armed()
        self._witness.end()

    def counts(self, called: attachment.Called) -> tuple[int, int | None]:
        runs, others = self._witness.counts(called)
        hits, odd = divmod(runs, self._facts.runs)
        if odd:
            raise EvidenceError(f"{runs} runs are not a whole number of hits, which have {self._facts.runs} each")
        entered = sum(self._entries.get(pid, 0) for pid in called.pids)
        if called.calls and entered > hits:
            raise EvidenceError(f"the kernel missed {entered - hits} of {entered} returns", hint=MISSED_RETURNS)
        return hits, self._hits_of_others(others)

    def recorded(self, called: attachment.Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        events = self._events
        rows = ([event.nanoseconds, event.pid, *map(hex, event.args)] for event in events)
        attachment.write_events(file, ["nanoseconds", "pid", *(f"arg{number}" for number in range(ARGUMENTS))], rows)
        for before, after in pairwise(events):
            if before.nanoseconds > after.nanoseconds and self._guest.machine.smp == 1:
                raise EvidenceError("events of the ring are out of order", detail=[str(before), str(after)])
        mine = [event for event in events if event.pid in called.pids]
        self._check_addresses(mine)
        if self._handler == "stack":
            self._check_stacks({event.args[-1] for event in mine})
        hits, _ = self.counts(called)
        runs = hits * self._facts.runs
        if len(mine) != runs:
            raise EvidenceError(f"the ring has {len(mine)} events of the calls, and the witness saw {runs} runs")
        return hits, self._hits_of_others(len(events) - len(mine))

    def _hits_of_others(self, runs: int) -> int:
        """Rounded up: a hit that was in progress when counting began or ended has only some of its runs counted."""
        return -(-runs // self._facts.runs)

    def _exchange(self, handler: Handler) -> None:
        self._turn = 1 - self._turn
        before = self._program
        if isinstance(self.point, UserPoint):
            # The kernel lists no uprobes, and since Linux 6.12 one outlives its link by a jiffy (delayed_fput() of
            # fs/file_table.c). The bytes are the same with one or two uprobes: so they must be original in between.
            before.detach()
            when = "after detaching the program"
            attachment.wait_until_untouched(self._guest, self._kind, self.point, self._place.observe, when)
            self._program = attach(self._guest, _NAMES[self._turn], handler, self._target)
        else:
            self._program = attach(self._guest, _NAMES[self._turn], handler, self._target)
            before.detach()
        self._handler = handler
        self.wait_until_armed()

    def _bear_witness(self) -> None:
        seen = self._witness.look()
        if self._handler in ("count", "count-shared"):
            counted, _ = self._program.counts()
            if counted < seen:
                raise EvidenceError(f"the BPF program counted {counted} runs, and the witness beside it {seen}")
        if is_recording(self._handler):
            self._check_none_dropped()
            self._events = self._program.events()
        if self._handler == "stack":
            numbers = {event.args[-1] for event in self._events}
            self._stacks = {number: self._program.stack(number) for number in numbers if number < _MOST_STACKS}

    def _check_none_dropped(self) -> None:
        _, dropped = self._program.counts()
        if dropped:
            raise EvidenceError(f"the ring of the BPF program had no room for {dropped} events")

    def _check_stacks(self, numbers: Collection[int]) -> None:
        """Each is more than the place itself, but a program's own, which begins there, may be no more than that."""
        is_users = isinstance(self.point, UserPoint)
        for number in numbers:
            if number not in self._stacks:
                raise EvidenceError(f"the kernel has not traced a stack: {number - (1 << 64)}")
            stack = self._stacks[number]
            if is_users and not self._kind.at_return and not (stack and self.point.is_at(stack[0])):
                raise EvidenceError(f"stack {number} does not begin at {self.point.name}", detail=[*map(hex, stack)])
            if not is_users and len(stack) < attachment.FEWEST_FRAMES:
                raise EvidenceError(f"stack {number} has {len(stack)} functions", detail=[*map(hex, stack)])

    def _check_addresses(self, events: Sequence[BpfEvent]) -> None:
        """One of each hit has the point's address: a kprobe's behind the breakpoint, an fprobe's behind the call."""
        behind = self._facts.behind
        if behind is None:
            return
        elsewhere = [event for event in events if not self.point.is_at(event.args[0] - behind)]
        at_point = len(events) - len(elsewhere)
        if at_point * self._facts.runs != len(events):
            raise EvidenceError(
                f"{at_point} of {len(events)} events have {self.point.name}'s address; one of each hit must have it",
                detail=[str((elsewhere or events)[0])],
            )


def target_of(guest: Guest, kind: ProbeKind, point: ProbePoint) -> Target:
    """The guest-side name of what to attach to. Raises EvidenceError if the kernel has no such event."""
    assert kind.program is not None
    if kind.tracepoint is not None:
        by_number = kind.program.link == "tracepoint"
        return Target(kind, str(event_number(guest, kind.tracepoint)) if by_number else kind.tracepoint)
    if isinstance(point, UserPoint):
        return Target(kind, point.file, point.file_offset, point.semaphore)
    if kind.program.link in ("trampoline", "functions"):
        return Target(kind, point.symbol)  # found by its type
    is_anywhere = kind.program.link == "kprobe" and not kind.at_return
    return Target(kind, *point.place(point.offset if is_anywhere else 0))


@contextlib.contextmanager
def bpf_attached(
    guest: Guest, kind: ProbeKind, tool: Path, point: ProbePoint, symbols: Symbols
) -> Iterator[BpfAttachment]:
    """Attach a program that does nothing at the point; detach all programs at the end. ``tool`` is bpfprobe.

    Raises EvidenceError if the kernel refuses it (with the kernel's reason), or if the original bytes are not restored
    at the end.
    """
    with attaching_programs(guest, kind, tool, point, symbols) as place:
        yield BpfAttachment(guest, kind, place)


# A user's BPF programs in a guest: attached by libbpf as their sections say, counted, detached and proved gone.
#
# The guest's side is ``images/bpf/bpfload.c``. While hits are counted, a witness of the lab's counts those at the probe
# point by process, and each of the user's programs must have run as often.

_LOADER = "/tmp/bpfload"  # noqa: S108 - in the guest
_OBJECT = "/tmp/own.bpf.o"  # noqa: S108 - in the guest
_FOLDER = "/sys/fs/bpf/lab-own"
_ATTACHED_PROGRAM = re.compile(r"(\d{1,10}) ([A-Za-z_]\w{0,127}) ([!-~]{1,200})")
_SIZED_MAP = re.compile(r"sized (\d{1,10}) ([A-Za-z_]\w{0,127})")
_STACKS = re.compile(r"^(\d{1,5}(?:\+\d{1,5}){0,300}) ([A-Za-z_]\w{0,127})$", re.MULTILINE)
_LONGEST_STACKS = 1 << 16
_CODE = re.compile(r"code (\d{1,20}) (\d{1,7})")
_LINE = re.compile(r"line (\d{1,20}) (\d{1,7}) ([^\t]{1,1000})\t(.{0,200})", re.DOTALL)
_LONGEST_LINES = 16 << 20
_SLEEPS = "is not sleepable"
"""The end of bpf_check_attach_target()'s sentence on a function (kernel/bpf/verifier.c)."""
_NOT_SLEEPABLE = 'the function takes no sleepable program: leave .s out of the section, as in SEC("fentry/vfs_read")'
_LONGEST_PHRASE = 200
"""Characters of a cell's parameter."""
_WITHOUT_OTHERS = "bpfload: once more, without the others\n"
"""Behind it are the loader's words on the program that a row names alone."""
_NO_ARRAY = "<invalid BPF map reference>"
"""libbpf's words, in place of the verifier's, where a program needs a map that was left out."""
_REFUSED_PROGRAM = re.compile(r"^libbpf: prog '(\w{1,128})': BPF program load failed", re.MULTILINE)
_NOT_LOADED = ("bpfload: the object does not load", "bpfload: libbpf cannot open the object")
_VERIFIERS_REASON = re.compile(r"^(\S.{0,200})\nprocessed \d+ insns", re.MULTILINE)


class UserBpfAttachment(PlacedAttachment):
    """Programs of a user's, which always do the same.

    There is no waiting: a link is in place once made.
    """

    trial_of: type[MapTrial] = MapTrial

    def __init__(
        self,
        guest: Guest,
        kind: ProbeKind,
        place: Place,
        programs: Sequence[UserBpfProgram],
        elsewhere: Sequence[UserBpfProgram] = (),
    ) -> None:
        super().__init__(guest, kind, place)
        self._programs = programs
        self._trial = self.trial_of(guest, (own.program for own in programs))
        point = self.point
        if isinstance(point, UserPoint):
            target = target_of(guest, probes()["bpf-uprobe"], point)
        else:  # at the entry, like the object's own kprobes
            target = Target(probes()["bpf-kprobe"], *point.place(0))
        self._hits = ProgramHits(guest, target, programs, elsewhere)

    def observe(self) -> Observation:
        for own in self._programs:
            if not own.program.info().jited:
                raise EvidenceError(f"the BPF program {own.name} is interpreted, and not compiled")
        return self._place.observe()

    def set_handler(self, handler: Handler) -> None:
        """The programs always do the same. Between ``count`` and ``noop`` their runs are compared with the witness."""
        if is_recording(handler):
            raise UnsupportedError("BPF programs of your own have no handlers, so they cannot record")
        if handler == "noop" and self._hits.is_counting:
            self._hits.look()

    @contextlib.contextmanager
    def separate_caller(self) -> Iterator[None]:
        before = self.observe()
        with self._trial.trying():
            self._hits.begin()
            yield
            self._hits.detach()
        attachment.wait_until_same(self._guest, self._kind, before, self, "after the witness")
        self._hits.end()

    def counts(self, called: attachment.Called) -> tuple[int, int | None]:
        """Those of the witnesses at the programs' places.

        Raises as ``ProgramHits.counts``, and EvidenceError if a map had no room for the hits.
        """
        hits, others = self._hits.counts(called)
        self._trial.check(called.calls, hits)
        return hits, others

    def recorded(self, called: attachment.Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        raise AssertionError("a user's programs do not record")

    def facts(self) -> Mapping[str, int | str]:
        """The sections and sizes of the programs."""
        sections = cut(", ".join(dict.fromkeys(own.section for own in self._programs)), _LONGEST_PHRASE)
        programs = {own.number: own.program for own in self._programs}
        return {BPF_SECTION: sections, **bpf_program.program_facts(programs.values()), **self._trial.facts()}


class ObjectAttachment(UserBpfAttachment):
    """The programs of a user's object, in the guest's file system. Made by ``user_bpf_attached``."""

    def __init__(
        self,
        guest: Guest,
        kind: ProbeKind,
        place: Place,
        programs: Sequence[UserBpfProgram],
        sized: Mapping[str, int],
    ) -> None:
        super().__init__(guest, kind, place, programs)
        self._sized = sized

    def facts(self) -> Mapping[str, int | str]:
        """The same, what was done for the object, and the stack that the verifier has found.

        The verifier says that when it loads them once more.
        """
        said = self._guest.run([_LOADER, "stacks", _OBJECT, *self._kind.parameters.values()]).text
        found = _STACKS.findall(said[:_LONGEST_STACKS])
        stacks = [sum(map(int, one.split("+"))) for one, name in found if name in {own.name for own in self._programs}]
        return {
            **super().facts(),
            **({BPF_STACK: max(stacks)} if stacks else {}),
            **({BPF_SIZED: cut(_sizes(self._sized), _LONGEST_PHRASE)} if self._sized else {}),
        }

    def with_code_lines(self, profile: CellProfile) -> CellProfile:
        made = (symbol for symbol in profile.symbols if symbol.place == "generated")
        executed = [one.offset for symbol in made for one in symbol.instructions]
        lines = code_lines(self._guest.succeed([_LOADER, "lines"]).stdout, executed) if executed else ()
        return profile.model_copy(update={"code_lines": tuple(lines)})


def _sizes(sized: Mapping[str, int]) -> str:
    sizes = [f"{name} has {entries}" for name, entries in sized.items()]
    return f"{', '.join(sizes)} entries by the lab: the source gives no max_entries"


def code_lines(said: bytes, executed: Collection[int]) -> Sequence[CodeLine]:
    """The lines of the loaded functions that were ``executed``, if they have any. Raises EvidenceError."""
    rows = said[:_LONGEST_LINES].decode(errors="ignore").split("\n")
    codes = [range(int(one[1]), int(one[1]) + int(one[2])) for one in map(_CODE.fullmatch, rows) if one]
    lines = [CodeLine(int(one[1]), int(one[2]), one[3], one[4].strip()) for one in map(_LINE.fullmatch, rows) if one]
    is_whole = len(said) <= _LONGEST_LINES and not rows[-1] and len(codes) + len(lines) == len(rows) - 1
    if not is_whole or any(code.stop >= 1 << 64 for code in codes):
        raise EvidenceError("the guest does not say the source lines of BPF programs", detail=_last("\n".join(rows)))
    # Of several lines at an address the last has the instruction: the compiler left out those of the others.
    places, by_address = sorted(executed), {line.address: line for line in lines}
    starts, found = sorted(by_address), dict[int, CodeLine]()
    for code in codes:
        if bisect_left(places, code.start) < bisect_left(places, code.stop):
            own = starts[bisect_left(starts, code.start) : bisect_left(starts, code.stop)]
            found |= {at: by_address[at] for at in own}
            found.setdefault(code.stop, CodeLine(code.stop))
    return [found[at] for at in sorted(found)] if any(line.file for line in found.values()) else []


@contextlib.contextmanager
def user_bpf_attached(
    guest: Guest, kind: ProbeKind, own: BpfObject, point: ProbePoint, symbols: Symbols
) -> Iterator[ObjectAttachment]:
    """Load and attach a user's object; at the end detach its programs, and prove that the kernel has none of them.

    Raises EvidenceError with libbpf's and the verifier's messages if it is refused, if a program is attached to another
    function than the point's, or if the original bytes are not restored at the end.
    """
    with (
        bpf_program.restoring_printk(guest),
        attaching_programs(guest, kind, own.tool, point, symbols) as place,
    ):
        guest.put(own.loader, _LOADER, mode=0o755)
        guest.put(own.file, _OBJECT)
        loader = _Loader(guest, kind, point)
        programs, elsewhere = _placed(point, loader.attach)
        if elsewhere:
            raise _misplaced(elsewhere[0], point)
        yield ObjectAttachment(guest, kind, place, programs, loader.sized)
    bpf_program.wait_until_gone(guest, [one.number for one in programs])


class _Loader:
    """The loader of a user's object in a guest; which maps it has ``sized`` is known once it has attached."""

    sized: Mapping[str, int] = {}

    def __init__(self, guest: Guest, kind: ProbeKind, point: ProbePoint) -> None:
        self._guest, self._kind, self._point = guest, kind, point

    def attach(self) -> Sequence[UserBpfProgram]:
        """Load and attach. Raises EvidenceError with libbpf's and the verifier's last words."""
        guest, kind, point = self._guest, self._kind, self._point
        guest.succeed(["mkdir", _FOLDER])
        place: list[str] = []
        if isinstance(point, UserPoint):
            place = ["at", point.file, str(point.file_offset), str(point.semaphore), point.symbol]
        # A row may name one of the object's programs.
        finished = guest.run([_LOADER, "attach", _FOLDER, _OBJECT, *kind.parameters.values(), *place])
        if finished.status != 0:
            raise _refused(kind, finished.stderr.decode(errors="replace"))
        lines = finished.text.splitlines()
        sized = [match for line in lines if (match := _SIZED_MAP.fullmatch(line))]
        attached = [match for line in lines if (match := _ATTACHED_PROGRAM.fullmatch(line))]
        if not attached or len(attached) + len(sized) != len(lines):
            raise EvidenceError(
                f"the guest does not say which programs of {kind.name} are attached", detail=_last(str(lines))
            )
        self.sized = {match[2]: int(match[1]) for match in sized}
        return [
            UserBpfProgram(int(match[1]), match[2], match[3], BpfProgram(guest, f"{_FOLDER}/{match[2]}"))
            for match in attached
        ]


_REFUSES, _DOES_NOT_LOAD = "the verifier refuses ", " does not load"


def is_not_loaded(reason: str) -> bool:
    """Whether a cell has failed for a program that the kernel does not load, and not later."""
    first = reason.partition("\n")[0]
    return first.startswith(_REFUSES) or first.endswith(_DOES_NOT_LOAD)


def _refused(kind: ProbeKind, said: str) -> EvidenceError:
    with_others, _, alone = said.rpartition(_WITHOUT_OTHERS)
    # What refuses a program that it goes on in (a tail call) refuses it.
    words = with_others if _NO_ARRAY in alone else alone
    why = _VERIFIERS_REASON.findall(words)
    refused = _REFUSED_PROGRAM.findall(words)
    name = kind.name if words is alone or not refused else f"{refused[-1]}, in which {kind.name} may go on"
    last = words.rstrip().rpartition("\n")[2]
    what = f"{kind.name}{_DOES_NOT_LOAD if last.startswith(_NOT_LOADED) else ' cannot be attached'}"
    refusal = f"{_REFUSES}{name}: {why[-1]}" if why else what
    return EvidenceError(refusal, hint=_NOT_SLEEPABLE if refusal.endswith(_SLEEPS) else "", detail=_last(words))


def _placed(
    point: ProbePoint, attach: Callable[[], Sequence[UserBpfProgram]]
) -> tuple[Sequence[UserBpfProgram], Sequence[UserBpfProgram]]:
    """The programs that ``attach`` attaches by name: those at the point or at no function, and those elsewhere.

    One that is at several functions is at the point. If several functions share the name, a refusal by the kernel says
    so.
    """
    try:
        programs = attach()
    except EvidenceError as error:
        if point.shared_with and not error.hint:
            error.hint = (
                f"{point.symbol} is a function of the kernel and of module {' and '.join(point.shared_with)}, and the "
                "kernel may refuse a name that is not unique: unload the module, or name another function"
            )
        raise
    here = {
        own.number
        for own in programs
        if (function := own.function) is None
        or any(fnmatchcase(name, function) for name in (point.symbol, *point.aliases))
    }
    return [own for own in programs if own.number in here], [own for own in programs if own.number not in here]


def _misplaced(own: UserBpfProgram, point: ProbePoint) -> EvidenceError:
    function = own.function
    is_pattern = function is not None and any(sign in function for sign in "*?")
    return EvidenceError(
        f"program {own.name} is attached to {function}, and the point is {point.symbol}",
        hint="make calls that enter it, and the function that they enter the point"
        if is_pattern
        else f"set points: [{function}], and make calls that enter it",
    )


def _last(text: str) -> list[str]:
    return [line[:200] for line in text.splitlines() if line.strip()][-_QUOTED_LINES:]


# A bpftrace one-liner in a guest whose image has bpftrace: started, verified in the kernel, paused, ended.
#
# The kernel, not bpftrace, says what is attached. While calls are timed the process is stopped: it would wake ten times
# a second to read its programs' output. If that output overflows its buffer, or a map gets full, the cost of a hit
# changes, and the cell fails.

_OUTPUT = "/tmp/bpftrace.out"  # noqa: S108 - in the guest
_LARGEST_OUTPUT = 8 << 20

_IDLE_TURNS = 100
"""Pauses of a bpftrace that uses no processor time, after which the lab gives up."""
_LOOKS = 3
"""Consecutive checks that find the process waiting: it has read all events."""
_WAITING = ("232", "281", "441")
"""epoll_wait, epoll_pwait and epoll_pwait2 of x86_64: where bpftrace waits for events, once all is attached."""
_STATE = re.compile(r"(\S+)[^\n]*\n\d+ \(.*\) (\S) (?:-?\d+ ){10}(\d{1,15}) (\d{1,15}) ", re.DOTALL)
"""The system call; from /proc/PID/stat the state, and the ticks of user and kernel time (proc(5))."""
_QUOTED_LINES = 20
_VERSION = re.compile(r"bpftrace v?([\w.+-]{1,60})")


class _Process:
    """A bpftrace that runs a one-liner; its ``version`` and what it has ``attached`` are known once it has."""

    version = ""
    attached: Sequence[Attached] = ()

    def __init__(self, guest: Guest, text: str, time_left: Callable[[], float]) -> None:
        self._guest, self._time_left = guest, time_left
        script, blocks = lab_script("start-bpftrace.sh").decode(), str(_LARGEST_OUTPUT // 512)
        started = re.fullmatch(r"(\d{1,7})\n", guest.succeed(["sh", "-c", script, "sh", text, _OUTPUT, blocks]).text)
        if started is None:
            raise EvidenceError("the guest does not say which process bpftrace is")
        self.pid = int(started[1])

    def attach(self) -> None:
        """Wait until it has attached everything, stop it, and ask what that is. Raises EvidenceError if it ends."""
        if not self._wait(1, "neither attaches the one-liner nor ends"):
            raise EvidenceError("bpftrace ended instead of attaching the one-liner", detail=self.words())
        self.signal("STOP")
        self.attached = bpf_program.attached_by(self._guest, self.pid)
        version = _VERSION.match(self._guest.run(["bpftrace", "--version"]).text)
        self.version = "unknown" if version is None else version[1]

    def read(self) -> None:
        """Let it read its programs' output so far. Raises EvidenceError if that never ends, or it has ended."""
        self.signal("CONT")
        if not self._wait(_LOOKS, "cannot finish reading its programs' output"):
            raise self._ended()
        self.signal("STOP")

    def end(self) -> None:
        """Let it detach and print its maps. Raises EvidenceError if it does not end, or output was lost."""
        self.read()
        self.signal("INT", "CONT")
        self._wait(None, "does not end")
        check_all_kept(self._guest.get(_OUTPUT, largest=_LARGEST_OUTPUT))

    def kill(self) -> None:
        self.signal("KILL")
        self._wait(None, "does not end")

    def signal(self, *names: str) -> None:
        for name in names:
            if self._guest.run(["kill", f"-{name}", str(self.pid)]).status != 0:
                raise self._ended()

    def words(self) -> Sequence[str]:
        printed = self._guest.run(["tail", "-c", "4096", _OUTPUT]).stdout
        return [line for line in plain_lines(printed) if line.strip()][-_QUOTED_LINES:]

    def _ended(self) -> EvidenceError:
        return EvidenceError("bpftrace ended while its probes were measured", detail=self.words())

    def _wait(self, looks: int | None, what_else: str) -> bool:
        """Wait until it has ended (False), or was found waiting for events ``looks`` times in a row.

        A busy one may use the cell's time: each pause checks what is left of it.
        """
        ticks, idle, waiting = -1, 0, 0
        while idle < _IDLE_TURNS:
            said = self._guest.run(["cat", f"/proc/{self.pid}/syscall", f"/proc/{self.pid}/stat"]).text
            found = _STATE.match(said[:2048])
            if found is None or found[2] == "Z":
                return False
            taken = int(found[3]) + int(found[4])
            ticks, idle = taken, idle + 1 if taken == ticks else 0
            waiting = waiting + 1 if found[1] in _WAITING else 0
            if waiting == looks:
                return True
            self._guest.succeed(("sleep", "0.1"), time_limit=self._time_left())
        raise EvidenceError(f"bpftrace {what_else}", detail=self.words())


_LESS = "print less at a hit, or give the guest more memory, of which a quarter keeps the output: set memory: 2G"


def check_all_kept(printed: bytes) -> None:
    """Raise EvidenceError if a buffer had no room for the programs' output: such a hit has another cost.

    bpftrace reports that anywhere in its output, also in the middle of a line.
    """
    if len(printed) == _LARGEST_OUTPUT:
        raise EvidenceError(f"bpftrace printed more than {_LARGEST_OUTPUT >> 20} MB")
    lost = re.search(r"Lost \d+ events", printed.decode(errors="replace"))
    if lost is not None:
        raise EvidenceError(f"bpftrace's buffer had no room for its programs' output: {lost[0]}", hint=_LESS)


class OneLinerAttachment(UserBpfAttachment):
    """The programs of a one-liner, attached by ``one_liner_attached``."""

    trial_of = AttendedMapTrial

    def __init__(
        self,
        guest: Guest,
        kind: ProbeKind,
        place: Place,
        programs: tuple[Sequence[UserBpfProgram], Sequence[UserBpfProgram]],
        process: _Process,
    ) -> None:
        super().__init__(guest, kind, place, *programs)
        self._process = process

    def facts(self) -> Mapping[str, int | str]:
        """The same, the version of bpftrace, and the probe kinds that it has attached, as the kernel says."""
        return {
            **super().facts(),
            BPFTRACE: self._process.version,
            ATTACHED: written(self._process.attached),
        }

    def renewal(self) -> Callable[[], None] | None:
        """Let bpftrace read what the calls so far have left to print; None for a line that prints nothing."""
        return self._process.read if prints(self._kind.one_liner or "") else None

    @contextlib.contextmanager
    def separate_caller(self) -> Iterator[None]:
        """Before hits are counted, bpftrace reads the output of the timed calls.

        The kernel reports lost output only with the next event that fits.
        """
        self._process.read()
        with super().separate_caller():
            yield


def written(attached: Sequence[Attached]) -> str:
    """How programs are attached: ``bpf-kprobe, bpf-kprobe-multi (3 places)``."""
    places: Counter[str] = Counter()
    for one in attached:
        places[one.kind] += one.places
    return ", ".join(kind if number == 1 else f"{kind} ({number} places)" for kind, number in sorted(places.items()))


@contextlib.contextmanager
def one_liner_attached(
    guest: Guest, kind: ProbeKind, tool: Path, point: ProbePoint, symbols: Symbols, time_left: Callable[[], float]
) -> Iterator[OneLinerAttachment]:
    """Let bpftrace attach a one-liner; end it, and prove that the kernel has none of its programs. ``tool``: bpfprobe.

    ``time_left`` returns the host seconds that the cell has left, or raises GuestHang if none. Raises EvidenceError
    with bpftrace's output if it refuses the one-liner, if the image lacks bpftrace, if a program is attached to another
    function than the point's, or if the original bytes are not restored at the end.
    """
    assert kind.one_liner is not None
    with (
        bpf_program.restoring_printk(guest),
        attaching_programs(guest, kind, tool, point, symbols) as place,
    ):
        if guest.run(["sh", "-c", "command -v bpftrace"]).status != 0:
            hint = f"set image: {IMAGE}, or add the package to your recipe"
            raise EvidenceError("the guest's image has no bpftrace", hint=hint)
        process = _Process(guest, kind.one_liner, time_left)
        try:
            programs, elsewhere = _placed(point, lambda: _attached(guest, process))
            if not programs:
                raise _misplaced(elsewhere[0], point)
            yield OneLinerAttachment(guest, kind, place, (programs, elsewhere), process)
        except LabError as error:
            # Report the first error. A guest in trouble gets no commands.
            if not isinstance(error, GuestError):
                with contextlib.suppress(CommandFailed, EvidenceError, GuestHang):
                    process.kill()
            raise
        process.end()
    bpf_program.wait_until_gone(guest, [one.number for one in process.attached])


def _attached(guest: Guest, process: _Process) -> Sequence[UserBpfProgram]:
    process.attach()
    found = process.attached
    if not found:
        raise EvidenceError("bpftrace has attached nothing", detail=process.words())
    # A program may be at several places.
    if any(one.link == "trampoline" and not one.name for one in found):
        raise EvidenceError("the kernel's type information has no name for a function that bpftrace has attached to")
    numbers = {one.number for one in found}
    pinned = {number: bpf_program.pinned(guest, f"lab-own-{number}", number) for number in numbers}
    programs = []
    for one in found:
        kind, offset = one.kind.removeprefix("bpf-"), f"+{one.offset:#x}" if one.offset else ""
        section = f"{kind}/{one.name}{offset}"
        programs.append(UserBpfProgram(one.number, f"{kind}:{one.name}", section, pinned[one.number]))
    return programs
