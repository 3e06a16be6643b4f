# SPDX-License-Identifier: GPL-2.0-only
"""A user's BPF programs in a guest: attached by libbpf as their sections say, counted, detached and proved gone.

The guest's side is ``images/bpf/bpfload.c``. While hits are counted, a witness of the lab's counts those at the probe
point by process, and each of the user's programs must have run as often.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.artifacts.bpf_objects import BpfObject
from orchestrator.artifacts.object_lines import object_lines
from orchestrator.catalog.probes import ALL_PROGRAMS, Handler, ProbeKind, is_recording, probes
from orchestrator.errors import (
    EvidenceError,
    UnsupportedError,
)
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import cut
from orchestrator.probes import attachment, bpf_program, final_form
from orchestrator.probes.attachment import Reader
from orchestrator.probes.bpf_attachment import attaching_programs, target_of
from orchestrator.probes.bpf_hits import HitCounter, ProgramHits, UserBpfProgram
from orchestrator.probes.bpf_program import Attached, AttachTarget, BpfProgram, attached_as, attached_in
from orchestrator.probes.bpf_refusal import last_lines, nowhere, refusal_of
from orchestrator.probes.evidence import Observation
from orchestrator.probes.hit_way import HitWay, LoadedCode, hit_way, is_reading, way_facts
from orchestrator.probes.map_reader import LOADERS_WORDS, MapReader
from orchestrator.probes.map_trial import MapTrial
from orchestrator.probes.place import Place, PlacedAttachment
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.runs_together import RunsTogether
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.traced_functions import BPF_TRAMPOLINE, check_trampoline
from orchestrator.probes.user_point import UserPoint
from orchestrator.profile.stored.cell_profile import CellProfile, CodeLine
from orchestrator.results.contract import LONGEST_PHRASE, ProgramRuns
from orchestrator.results.parameters import ATTACHED, BPF_HITS, BPF_SECTION, BPF_SIZED, BPF_STACK

_LOADER = "/tmp/bpfload"  # noqa: S108 - in the guest


_OBJECT = "/tmp/own.bpf.o"  # noqa: S108 - in the guest


_ENTRIES = "/tmp/own.entries"  # noqa: S108 - in the guest


_FOLDER = "/sys/fs/bpf/lab-own"


_ATTACHED_PROGRAM = re.compile(r"(\d{1,10}) ([A-Za-z_]\w{0,127}) ([!-~]{1,200})")


_SIZED_MAP = re.compile(r"(sized|enlarged) (\d{1,10}) ([A-Za-z_]\w{0,127})")


_UNATTACHED = re.compile(r"(unattached|left) (\d{1,10}) ([A-Za-z_]\w{0,127}) ([!-~]{1,200})")


_READ_MAPS = re.compile(r"reads (\d{1,3}) (\d{1,7}) (\d{1,7})")


_ALL_CALLS = 1 << 20


_STACKS = re.compile(r"^(\d{1,5}(?:\+\d{1,5}){0,300}) ([A-Za-z_]\w{0,127})$", re.MULTILINE)


_LONGEST_STACKS = 1 << 16


_CODE = re.compile(r"code (\d{1,20}) (\d{1,7})")


_LINE = re.compile(r"line (\d{1,20}) (\d{1,7}) ([^\t]{1,1000})\t(.{0,200})", re.DOTALL)


_LONGEST_LINES = 16 << 20


class UserBpfAttachment(PlacedAttachment):
    """Programs of a user's, which always do the same.

    There is no waiting: a link is in place once made.
    """

    trial_of: type[MapTrial] = MapTrial
    _executed: Mapping[int, int] = {}

    def __init__(
        self,
        guest: Guest,
        kind: ProbeKind,
        place: Place,
        programs: Sequence[UserBpfProgram],
        hits: HitCounter,
        reader: MapReader | None = None,
    ) -> None:
        super().__init__(guest, kind, place)
        self._programs = programs
        self._trial = self.trial_of(guest, (program.program for program in programs), reader)
        self._hits = hits

    def observe(self) -> Observation:
        codes = []
        for program in self._programs:
            info = program.program.info()
            if not info.jited:
                raise EvidenceError(f"the BPF program {program.name} is interpreted, and not compiled")
            codes.append(info.code)
        seen = self._place.observe()
        if seen.traced is None or seen.traced.direct is None or seen.jump_target is None:
            return seen
        target = self.point.address + seen.jump_target
        if seen.traced.users > 1:
            # The tracer's own code calls one user after the other, as with a kprobe beside an fexit program.
            return replace(seen, called=f"{target:#x}")
        check_trampoline(self._guest, seen.traced, target, codes)
        return replace(seen, called=BPF_TRAMPOLINE)

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
        final_form.wait_until_same(self._guest, self._kind, before, self, "after the witness")
        self._hits.end()

    def counts(self, called: attachment.Called) -> tuple[int, int | None]:
        """The counts of the witnesses at the programs' places; of programs that are attached together, the calls.

        Raises as ``HitCounter.counts``, and EvidenceError if a map had no room for the hits.
        """
        hits, hits_of_others = self._hits.counts(called)
        self._trial.check(called.calls, hits)
        return hits, hits_of_others

    def recorded(self, called: attachment.Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        raise AssertionError("a user's programs do not record")

    def written_buffers(self) -> Sequence[str]:
        return self._trial.written_buffers()

    def runs_among(self, executed: Mapping[int, int]) -> int:
        runs = {
            program.name: program.program.info().runs_among(executed) // program.runs_per_hit
            for program in self._programs
        }
        if len(set(runs.values())) != 1:
            named = ", ".join(f"{name} {times} times" for name, times in runs.items())
            raise EvidenceError(f"a run hits the programs unequally often: {named}", hint="measure each alone")
        return next(iter(runs.values()))

    def learn(self, executed: Mapping[int, int], calls: int) -> None:
        self._hits.learn(executed, calls)
        self._executed = executed

    def facts(self) -> Mapping[str, int | str]:
        """The sections and sizes of the programs, and what is to be said of the hits of a call."""
        sections = cut(", ".join(dict.fromkeys(program.section for program in self._programs)), LONGEST_PHRASE)
        programs = {program.number: program.program for program in self._programs}
        return {
            BPF_SECTION: sections,
            **bpf_program.program_facts(programs.values()),
            **self._trial.facts(),
            **self._hits.facts(),
            **({BPF_HITS: cut("; ".join(said), LONGEST_PHRASE)} if (said := self._hits.remarks()) else {}),
        }

    def program_runs(self) -> Sequence[ProgramRuns]:
        return self._hits.program_runs()


class ObjectAttachment(UserBpfAttachment):
    """The programs of a user's object, in the guest's file system. Made by ``user_bpf_attached``."""

    def __init__(
        self,
        guest: Guest,
        kind: ProbeKind,
        place: Place,
        programs: Sequence[UserBpfProgram],
        loader: _Loader,
        symbols: Symbols | None = None,
    ) -> None:
        super().__init__(guest, kind, place, programs, loader.counter(place.point, programs), loader.reader)
        self._symbols, self._file = symbols, loader.file
        self._sized, self._enlarged = loader.sized, loader.enlarged
        self._arguments, self._facts = [*loader.sizes_given, *loader.together], loader.facts
        self._reader = loader.reader
        self.has_buffers = loader.reader.count > 0

    def fill(self) -> None:
        self._reader.fill()

    def reader(self, call: Callable[[int], object]) -> Reader | None:
        """The reader of the programs' buffers, in which all calls of a cell have room; records may wake it."""
        return Reader(self._reader.process, _ALL_CALLS) if self.has_buffers else None

    def facts(self) -> Mapping[str, int | str]:
        """The sections and sizes of the programs, what was done for the object, and the verifier's stack depth.

        The verifier says that when it loads them once more.
        """
        said = self._guest.run([_LOADER, "stacks", *self._arguments, _OBJECT, *_chosen(self._kind)]).text
        stacks_said = _STACKS.findall(said[:_LONGEST_STACKS])
        stacks = [
            sum(map(int, sizes.split("+")))
            for sizes, name in stacks_said
            if name in {program.name for program in self._programs}
        ]
        enlarged = {name: size for name, size in self._enlarged.items() if self._trial.has_tried(name)}
        events = self._trial.buffers_of_events()
        return {
            **super().facts(),
            **self._ways(),
            **self._facts,
            **({BPF_STACK: max(stacks)} if stacks else {}),
            **(
                {BPF_SIZED: cut(said_of_maps, LONGEST_PHRASE)}
                if (said_of_maps := _sizes(self._sized, enlarged, events))
                else {}
            ),
        }

    def _ways(self) -> Mapping[str, int | str]:
        """How much of the programs the timed calls execute, if QEMU has counted that."""
        executed, symbols = self._executed, self._symbols
        if not executed or symbols is None:
            return {}
        lines, content = self._code_lines(executed), self._file.read_bytes()
        ways = dict[str, HitWay]()
        for program in self._programs:
            info = program.program.info()
            code = self._guest.read_memory(info.code, info.jited)
            loaded = LoadedCode(code, info.code, lines, object_lines(content, program.name))
            way = hit_way(loaded, executed, lambda address: is_reading(symbols.names(address)))
            if way is not None:
                ways[program.name] = way
        return way_facts(ways)

    def _code_lines(self, executed: Collection[int]) -> Sequence[CodeLine]:
        return code_lines(self._guest.succeed([_LOADER, "lines"]).stdout, executed) if executed else ()

    def with_code_lines(self, profile: CellProfile) -> CellProfile:
        made = (symbol for symbol in profile.symbols if symbol.place == "generated")
        executed = [symbol.address + instruction.offset for symbol in made for instruction in symbol.instructions]
        return profile.model_copy(update={"code_lines": tuple(self._code_lines(executed))})


def _sizes(sized: Mapping[str, int], enlarged: Mapping[str, int], events: Mapping[str, int]) -> str:
    def each(sizes: Mapping[str, int]) -> str:
        return ", ".join(f"{name} has {size}" for name, size in sizes.items())

    said = [
        f"{each(sized)} entries by the lab: the source gives no max_entries" if sized else "",
        f"{each(enlarged)} bytes by the lab: a hit finds room, as in a buffer that is read" if enlarged else "",
        f"{each(events)} bytes for each CPU by the lab, and each record wakes the reader by an interrupt"
        if events
        else "",
    ]
    return "; ".join(filter(None, said))


def code_lines(said: bytes, executed: Collection[int]) -> Sequence[CodeLine]:
    """The lines of the loaded functions that were ``executed``, if they have any. Raises EvidenceError."""
    rows = said[:_LONGEST_LINES].decode(errors="ignore").split("\n")
    codes = [range(int(match[1]), int(match[1]) + int(match[2])) for match in map(_CODE.fullmatch, rows) if match]
    lines = [
        CodeLine(int(match[1]), int(match[2]), match[3], match[4].strip())
        for match in map(_LINE.fullmatch, rows)
        if match
    ]
    is_whole = len(said) <= _LONGEST_LINES and not rows[-1] and len(codes) + len(lines) == len(rows) - 1
    if not is_whole or any(code.stop >= 1 << 64 for code in codes):
        raise EvidenceError(
            "the guest does not say the source lines of BPF programs", detail=last_lines("\n".join(rows))
        )
    # Of several lines at an address the last has the instruction: the compiler left out those of the others.
    places, by_address = sorted(executed), {line.address: line for line in lines}
    starts, executed_lines = sorted(by_address), dict[int, CodeLine]()
    for code in codes:
        if bisect_left(places, code.start) < bisect_left(places, code.stop):
            here = starts[bisect_left(starts, code.start) : bisect_left(starts, code.stop)]
            executed_lines |= {at: by_address[at] for at in here}
            executed_lines.setdefault(code.stop, CodeLine(code.stop))
    return (
        [executed_lines[at] for at in sorted(executed_lines)]
        if any(line.file for line in executed_lines.values())
        else []
    )


@contextlib.contextmanager
def user_bpf_attached(
    guest: Guest, kind: ProbeKind, bpf_object: BpfObject, point: ProbePoint, symbols: Symbols
) -> Iterator[ObjectAttachment]:
    """Load and attach a user's object; at the end detach its programs, and prove that the kernel has none of them.

    Raises EvidenceError with libbpf's and the verifier's messages if it is refused, if a program is attached to another
    function than the point's, or if the original bytes are not restored at the end.
    """
    with (
        bpf_program.restoring_printk(guest),
        attaching_programs(guest, kind, bpf_object.tool, point, symbols) as place,
    ):
        guest.put(bpf_object.loader, _LOADER, mode=0o755)
        guest.put(bpf_object.file, _OBJECT)
        loader = _Loader(guest, kind, point, bpf_object)
        programs, elsewhere = (loader.attach(), ()) if kind.is_together else placed(point, loader.attach)
        with attachment.cleanup_after(loader.reader.end):
            if elsewhere:
                raise misplaced(elsewhere[0], point)
            yield ObjectAttachment(guest, kind, place, programs, loader, symbols)
    bpf_program.wait_until_gone(guest, [program.number for program in (*programs, *loader.unattached)])


def hits_at(
    guest: Guest, point: ProbePoint, programs: Sequence[UserBpfProgram], elsewhere: Sequence[UserBpfProgram] = ()
) -> ProgramHits:
    """What counts the hits of programs at the point; ``elsewhere`` are others of the same row."""
    if isinstance(point, UserPoint):
        target = target_of(guest, probes()["bpf-uprobe"], point)
    else:  # at the entry, like the object's own kprobes
        target = AttachTarget(probes()["bpf-kprobe"], *point.place(0))
    return ProgramHits(guest, target, programs, elsewhere)


class _Loader:
    """The loader of a user's object in a guest; once it has attached, it knows the maps that it has sized or enlarged.

    ``reader`` is that of the maps that user space reads. Of programs that are attached together, those ``unattached``
    are only loaded, and those ``left`` are optional.
    """

    sized: Mapping[str, int] = {}
    enlarged: Mapping[str, int] = {}
    unattached: Sequence[UserBpfProgram] = ()
    left: Sequence[str] = ()
    _links: Sequence[Attached] = ()

    def __init__(self, guest: Guest, kind: ProbeKind, point: ProbePoint, bpf_object: BpfObject) -> None:
        self._guest, self._kind, self._point, self._object = guest, kind, point, bpf_object
        self.reader = MapReader(guest, 0)

    @property
    def file(self) -> Path:
        """The object on the host."""
        return self._object.file

    @property
    def sizes_given(self) -> Sequence[str]:
        """The loader's arguments for the sizes that maps are given."""
        return [word for name, size in self._object.sizes.items() for word in ("entries", name, str(size))]

    @property
    def together(self) -> Sequence[str]:
        """The loader's arguments for programs that are attached together."""
        names = ",".join(self._kind.named_programs) or ALL_PROGRAMS
        return ["together", names, bpf_program.TOOL] if self._kind.is_together else []

    @property
    def facts(self) -> Mapping[str, str]:
        """How the kernel says that programs are attached together; nothing of others."""
        return {ATTACHED: cut(attached_as(self._links), LONGEST_PHRASE)} if self._kind.is_together else {}

    def counter(self, point: ProbePoint, programs: Sequence[UserBpfProgram]) -> HitCounter:
        """What counts the hits. Raises EvidenceError for a program that is attached otherwise than its section says."""
        if not self._kind.is_together:
            return hits_at(self._guest, point, programs)
        return RunsTogether(self._guest, programs, self._links, self.unattached, self.left)

    def _contents_given(self) -> Iterator[str]:
        """The loader's arguments for what is put into maps, whose files are copied into the guest."""
        for number, (name, file) in enumerate(self._object.contents.items()):
            entries = f"{_ENTRIES}-{number}"
            self._guest.put(file, entries)
            yield from ("fill", name, entries)

    def attach(self) -> Sequence[UserBpfProgram]:
        """Load and attach. Raises EvidenceError with libbpf's and the verifier's last words."""
        guest, kind, point = self._guest, self._kind, self._point
        guest.succeed(["mkdir", _FOLDER])
        place: list[str] = []
        if isinstance(point, UserPoint):
            place = ["at", point.file, str(point.file_offset), str(point.semaphore), point.symbol]
        # A row may name one of the object's programs.
        state = [*self.sizes_given, *self._contents_given(), *LOADERS_WORDS, *self.together]
        finished = guest.run([_LOADER, "attach", *state, _FOLDER, _OBJECT, *_chosen(kind), *place])
        lines = finished.text.splitlines()
        readers = [match for line in lines if (match := _READ_MAPS.fullmatch(line))]
        self.reader = MapReader(guest, *map(int, readers[0].groups())) if readers else MapReader(guest, 0)
        if finished.status != 0:
            self.reader.end()
            raise refusal_of(kind, finished.stderr.decode(errors="replace"))
        sized = [match for line in lines if (match := _SIZED_MAP.fullmatch(line))]
        attached = [match for line in lines if (match := _ATTACHED_PROGRAM.fullmatch(line))]
        unattached = [match for line in lines if (match := _UNATTACHED.fullmatch(line))]
        known = {match.string for match in (*readers, *sized, *attached, *unattached)}
        listed = [line for line in lines if line not in known]
        if unattached and not attached:
            self.reader.end()
            raise nowhere(kind, [f"{match[3]} ({match[4]})" for match in unattached])
        if not attached or len(readers) != 1 or (listed and not kind.is_together):
            raise EvidenceError(
                f"the guest does not say which programs of {kind.name} are attached", detail=last_lines(str(lines))
            )
        self.sized = {match[3]: int(match[2]) for match in sized if match[1] == "sized"}
        self.enlarged = {match[3]: int(match[2]) for match in sized if match[1] == "enlarged"}
        self._links = attached_in("\n".join(listed))
        self.left = [match[3] for match in unattached if match[1] == "left"]
        self.unattached = [
            UserBpfProgram(number, match[3], match[4], bpf_program.pinned(guest, f"lab-own-{number}", number))
            for match in unattached
            if match[1] != "left" and (number := int(match[2]))
        ]
        return [
            UserBpfProgram(int(match[1]), match[2], match[3], BpfProgram(guest, f"{_FOLDER}/{match[2]}"))
            for match in attached
        ]


def placed(
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
        program.number
        for program in programs
        if (function := program.function) is None
        or any(fnmatchcase(name, function) for name in (point.symbol, *point.aliases))
    }
    return [program for program in programs if program.number in here], [
        program for program in programs if program.number not in here
    ]


def misplaced(program: UserBpfProgram, point: ProbePoint) -> EvidenceError:
    """The error of a program that is attached elsewhere than at the point."""
    function = program.function
    is_pattern = function is not None and any(sign in function for sign in "*?")
    return EvidenceError(
        f"program {program.name} is attached to {function}, and the point is {point.symbol}",
        hint="make calls that enter it, and the function that they enter the point"
        if is_pattern
        else f"set points: [{function}], and make calls that enter it",
    )


def _chosen(kind: ProbeKind) -> Sequence[str]:
    """The loader's argument that names the only program to attach; none for all."""
    return [] if kind.one_program is None else [kind.one_program]
