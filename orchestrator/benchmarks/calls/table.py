# SPDX-License-Identifier: GPL-2.0-only
"""A table of calls in an experiment file: the keys of its benchmark, and its cells' points, probes and handlers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, PrivateAttr, ValidationInfo

from orchestrator.benchmarks.calls.benchmarks import COUNTED_BENCHMARK, Buffer, Entry, benchmarks, call_probe
from orchestrator.benchmarks.calls.call_programs import Argument
from orchestrator.benchmarks.calls.call_results import SUCCESS, Expected, phrase
from orchestrator.benchmarks.calls.header_constants import header_constant
from orchestrator.catalog.data import choices_sentence
from orchestrator.catalog.error_names import error_numbers
from orchestrator.catalog.images import image as image_recipe
from orchestrator.catalog.images import is_user_disk
from orchestrator.catalog.price_list import priced_cpus
from orchestrator.catalog.probes import (
    BASELINE,
    IMAGE,
    Handler,
    ProbeKind,
    is_one_liner,
    probe_in_catalogue,
    probe_name,
    published_column,
    shortened,
)
from orchestrator.catalog.reference import reference_table
from orchestrator.catalog.system_calls import system_calls
from orchestrator.catalog.user_files import UserWorkload, find_library, find_workload
from orchestrator.catalog.words import ProfilePart, ProfilePartWanted
from orchestrator.errors import ConfigError
from orchestrator.experiment import fields as file_fields
from orchestrator.experiment.cell import Cell, machine_id, module_parameters
from orchestrator.experiment.fields import EXECUTED, Entries, one_of, whole
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.experiment.problems import Problem, conflict, mismatch, shown, wrong
from orchestrator.experiment.source import Quoted, Unquoted
from orchestrator.experiment.table import DEFAULT_REPEATS, FEWEST_WALL_REPEATS, BenchmarkChoice, MatrixRow, ProbedTable
from orchestrator.probes.placement import ProbePlace, refusal_of
from orchestrator.probes.point import Point
from orchestrator.results.contract import MOST_COUNTED_RUNS, PER_CALL, PER_RUN, ReferenceValue
from orchestrator.results.parameters import ARGUMENTS, AT, CALL, IN_TURNS, KERNEL_MODULES, ONE_LINER, POINTS, WORKLOAD

_LONGEST_TEXT = 200
_LARGEST_BUFFER = 65536
_MOST_ARGUMENTS = 6
_OF_PROGRAMS = ("workload", COUNTED_BENCHMARK)
"""The benchmarks whose arguments are texts: those of a program."""
_LONGEST_RUN = 200
"""Characters of a command: as many as a record keeps, so that two commands differ there."""
_COUNTED_HANDLERS: tuple[Handler, ...] = ("noop", "count")
_FEWEST_RUNS, _RUNS = 3, 7
"""Runs that are counted, fewest and by default."""
_WORDS = range(-(1 << 63), 1 << 64)
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,19})")
_LIKE_A_NUMBER = re.compile(r"[-+~(]*\.?[0-9]")
_CONSTANT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
_FileT = TypeVar("_FileT")
_OR_A_TEXT = "; a text to point to stands in quotes"


def checked_arguments(value: object) -> object:
    """A list of at most six."""
    if not isinstance(value, list | tuple) or len(value) > _MOST_ARGUMENTS:
        value_found = f"{len(value)} arguments" if isinstance(value, list | tuple) else shown(value)
        raise wrong(f"found {value_found}; expected a list of at most {_MOST_ARGUMENTS}")
    return tuple(value)


def checked_call(value: object) -> object:
    """A system call's name."""
    if not isinstance(value, str) or value not in system_calls():
        raise mismatch(value, "expected the name of a system call, such as getppid", system_calls())
    return value


def checked_argument(value: object, info: ValidationInfo) -> object:
    """A decimal number, a constant of C, a text in quotes to point to, or ``{buffer: BYTES}``, 1 to 65536, to point to.

    A constant is one that the headers of system calls have, or several: ``O_WRONLY|O_CREAT``. A text has up to 200
    characters; a path (``/dev/null``) and what a program gets need no quotes.
    """
    is_programs = info.data.get("name") in _OF_PROGRAMS
    if isinstance(value, Unquoted) and not is_programs and not value.startswith(("/", "./", "../")):
        value = _number(value)
    if isinstance(value, int) and not isinstance(value, bool) and value in _WORDS:
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_TEXT and "\0" not in value and value.isprintable():
        return value
    unknown = [key for key in value if key != "buffer"] if isinstance(value, dict) else []
    if unknown:
        raise conflict([Problem((key,), f"unknown key; {choices_sentence(str(key), ['buffer'])}") for key in unknown])
    if isinstance(value, dict) and value:
        size = value["buffer"]
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _LARGEST_BUFFER:
            return Buffer(buffer=size)
    raise mismatch(
        value, f"expected a number, a text of at most {_LONGEST_TEXT} characters, or {{buffer: 1 to {_LARGEST_BUFFER}}}"
    )


def _number(text: str) -> int:
    """A number that is written without quotes: a decimal one of 64 bits, or constants of C, joined by ``|``."""
    if _DECIMAL.fullmatch(text) and int(text) in _WORDS:
        return int(text)
    if _LIKE_A_NUMBER.match(text):
        raise mismatch(text, f"numbers are decimal and whole, within 64 bits{_OR_A_TEXT}")
    names = [name.strip() for name in text.split("|")]
    if not all(_CONSTANT.fullmatch(name) for name in names):
        raise mismatch(text, f"this is neither a number nor a constant of C{_OR_A_TEXT}")
    try:
        return reduce(int.__or__, map(header_constant, names))
    except ConfigError as error:
        raise mismatch(text, f"{error.what}: write the number{_OR_A_TEXT}") from None


def checked_outcome(value: object) -> object:
    """``success``, the name of an error, or a number that is no error."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    known = [SUCCESS, *error_numbers()]
    if isinstance(value, str) and value in known:
        return value
    raise mismatch(value, "expected success, the name of an error, such as EBADF, or a number from 0", known)


def checked_file(value: object, info: ValidationInfo) -> object:
    """The path of a C file or of a static program, of ``program`` that of any program; it becomes absolute."""
    is_program = info.data.get("name") == COUNTED_BENCHMARK
    expected = "expected the path of a program" if is_program else "expected the path of a C file or a static program"
    return str(_named_file(value, partial(find_workload, is_program=is_program), expected).file)


def checked_run(value: object) -> object:
    """A shell's command of 1 to 200 printable characters."""
    if not isinstance(value, str) or not value.isprintable() or not value.isascii() or not value.strip():
        raise mismatch(value, "expected a shell's command, such as sort /etc/passwd | wc -l")
    if len(value) > _LONGEST_RUN:
        most = f"a command has at most {_LONGEST_RUN}: put a longer one into a script of the image"
        raise wrong(f"found {len(value)} characters; {most}")
    return value


def checked_library(value: object) -> object:
    """A library of the image by its name, or the path of a C file or a library of your own, which becomes absolute."""
    expected = "expected a library of the image, such as libc.so.6, or a path: ./libmine.c, ./libmine.so"
    library = _named_file(value, find_library, expected)
    return library.name if library.file is None else str(library.file)


def _named_file(value: object, find: Callable[[str], _FileT], expected: str) -> _FileT:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise mismatch(value, expected)
    try:
        return find(value)
    except ConfigError as error:
        raise wrong(error.what) from None


class CallsBenchmark(BenchmarkChoice):
    """What each cell runs: samples of many calls, or runs of a program."""

    calls: Annotated[int, whole(1, 1_000_000)] = 5000
    """Calls in a sample. A program is run whole, and has no such key."""
    repeats: Annotated[int, whole(1, 100)] | None = None
    """Samples of each cell. Where they scatter, by clock ``wall`` or of a program, at least 6, and 12 by default.

    Runs of ``program`` are counted: an odd number from 3 to 15, by default 7.
    """
    entry: Annotated[Entry, one_of(lambda: get_args(Entry))] = "auto"
    """The way into the kernel, of ``gtodbench`` and ``syscall``: ``auto`` is the fastest that CPU and kernel have.

    ``sysenter`` is i386's, ``syscall`` x86_64's.
    """
    call: Annotated[str, BeforeValidator(checked_call)] | None = None
    """The system call; required of ``syscall``, and of no other benchmark."""
    arguments: Annotated[
        tuple[Annotated[Argument, BeforeValidator(checked_argument)], ...], BeforeValidator(checked_arguments)
    ] = ()
    """What each call of ``syscall`` passes, or the texts that a program gets."""
    expect: Annotated[Expected, BeforeValidator(checked_outcome)] | None = None
    """What each call of ``gtodbench`` and ``syscall`` must return, else the cell fails. Without it, anything.

    Of ``workload``, what each system call of ``workload()`` must return.
    """
    file: Annotated[str, BeforeValidator(checked_file)] | None = None
    """The workload; required of ``workload``. A C file defines ``workload()``; of a program a sample is a whole run.

    ``program`` takes a program, which may need the shared libraries of the table's ``image``.
    """
    run: Annotated[str, BeforeValidator(checked_run)] | None = None
    """The command that ``program`` runs in place of a ``file``, with the guest's shell: ``sort /etc/passwd | wc``."""
    libraries: Entries[Annotated[str, BeforeValidator(checked_library)]] | None = None
    """Shared libraries that a C file of ``workload`` is linked with; the table needs an ``image``."""
    in_turns: bool = False
    """Whether all CPUs make the calls, one after the other in turns, and the lines that move between them are counted.

    Not of programs. A sample has at most 50 calls on each CPU.
    """
    hits: Annotated[int, whole(1, 1_000_000)] = 1
    """How often one call, or one run of a program, enters the point."""

    @property
    def is_counted(self) -> bool:
        """Whether it is a program whose instructions are counted by system call."""
        return self.name == COUNTED_BENCHMARK

    @property
    def own(self) -> UserWorkload | None:
        return find_workload(self.file, is_program=self.is_counted) if self.file is not None else None

    @property
    def is_program(self) -> bool:
        return self.is_counted or (self.own is not None and self.own.kind == "program")

    def conflicts(self) -> Iterator[Problem]:
        spec = benchmarks()[self.name]
        names_its_call = bool(spec.entries) and spec.call is None
        # Other keys this benchmark would ignore.
        allowed = {
            "entry": bool(spec.entries),
            "call": names_its_call,
            "file": self.name in _OF_PROGRAMS,
            "run": self.is_counted,
            "libraries": self.name == "workload" and not self.is_program,
            "arguments": names_its_call or (self.is_program and self.run is None),
            "hits": not self.is_counted,
            "in_turns": not self.is_program,
            "expect": not self.is_program,
            "calls": not self.is_program,
        }
        for key, may in allowed.items():
            if not may and key in self.model_fields_set and getattr(self, key) != type(self).model_fields[key].default:
                what = f"benchmark '{self.name}' does not have this key"
                if self.is_program:
                    what = {"hits": "QEMU counts them", "arguments": "the command has them"}.get(
                        key, "a program is run whole"
                    )
                yield Problem((key,), f"{what}; leave it out")
        if self.is_program and not all(isinstance(argument, str) for argument in self.arguments):
            yield Problem(("arguments",), "a program's arguments are texts; put numbers in quotes")
        if self.is_counted and (self.file is None) == (self.run is None):
            what = (
                "missing; name a program, or a command (run)"
                if self.file is None
                else "there is also run; leave one out"
            )
            yield Problem(("file",), what)
        if self.name == "workload" and self.file is None:
            yield Problem(("file",), "missing; benchmark 'workload' runs a file of your own")
        if names_its_call and self.call is None:
            yield Problem(("call",), f"missing; benchmark '{self.name}' makes a system call, such as getppid")


def _with_repeats(benchmark: CallsBenchmark, info: ValidationInfo) -> CallsBenchmark:
    clock = info.data.get("clock")  # None where the clock itself is invalid
    if benchmark.repeats is not None or clock is None:
        return benchmark
    if benchmark.is_counted:
        return benchmark.model_copy(update={"repeats": _RUNS})
    # A program's runs scatter on the exact clock as well.
    return benchmark.model_copy(update={"repeats": DEFAULT_REPEATS["wall" if benchmark.is_program else clock]})


@dataclass(frozen=True)
class FoundPoint:
    """A probe point, why it cannot be probed, and how often a call ``hits`` it, where that is known.

    A ``point`` of None is the benchmark's own, one of ``SYMBOL+*`` has a ``place``.
    """

    point: Point | None
    hits: int | None = None
    refusal: str | None = None
    place: ProbePlace | None = None


class CallsTable(ProbedTable):
    """Machines, kernels, points, probes and handlers, of which every combination is a cell."""

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = get_args(ProfilePartWanted)
    _found: Mapping[tuple[str, str], Sequence[FoundPoint]] = PrivateAttr(default_factory=dict)

    benchmark: Annotated[CallsBenchmark, AfterValidator(_with_repeats)]
    kernel_modules: Entries[Annotated[str, BeforeValidator(file_fields.kernel_module)]] | None = None
    """The kernel's own modules that are loaded before anything is measured. Points may be in them."""
    profile: Entries[Annotated[ProfilePart, one_of(lambda: CallsTable.PROFILE_PARTS)]] | None = None
    """What each cell says of where its instructions went. Needs the clock ``instructions``, and no program.

    ``symbols``: by function; ``classes``: with loads, stores and taken branches; ``stacks``: by what called it;
    ``caches``: with misses in models of the CPU's caches; ``purposes``: with what a probe spends its overhead on.
    """

    def resolved(self) -> dict[str, Any]:
        """The table as plain values. Texts to point to are quoted: ``O_RDONLY`` without quotes is a number."""
        plain = super().resolved()
        arguments = plain["benchmark"]["arguments"]
        plain["benchmark"]["arguments"] = [
            Quoted(argument) if isinstance(argument, str) else argument for argument in arguments
        ]
        return plain

    @property
    def profile_parts(self) -> tuple[ProfilePart, ...]:
        return ("system-calls",) if self.benchmark.is_counted else super().profile_parts

    @property
    def takes_turns(self) -> bool:
        return self.benchmark.in_turns

    @property
    def repeats(self) -> int:
        return self.benchmark.repeats or DEFAULT_REPEATS[self.clock]

    @property
    def _scattering(self) -> str:
        return "a program's runs scatter" if self.benchmark.is_program else "clock 'wall' counts no instructions"

    @property
    def named_points(self) -> Sequence[Point]:
        return () if self.points is None or self.points == EXECUTED else [Point.of(point) for point in self.points]

    @property
    def unknown(self) -> str | None:
        if self.points == EXECUTED and not self._found:
            return f"points: {EXECUTED}: a guest has to make the calls first"
        points = [point for found_points in self._found.values() for point in found_points]
        named = ", ".join(map(str, self.whole_functions))
        if named and (not points or any(point.place and point.hits is None for point in points)):
            return f"points: {named}: a guest has to count first how often a call executes each instruction"
        instructions = [str(point) for point in self.named_points if point.file is None and str(point) != point.symbol]
        why = "which probes an instruction accepts shows only when it is tried"
        return f"points: {', '.join(instructions)}: {why}" if instructions else None

    @property
    def whole_functions(self) -> Sequence[Point]:
        """The points ``SYMBOL+*``, each of which stands for all instructions of a function."""
        return [point for point in self.named_points if point.is_whole]

    @property
    def are_counted(self) -> bool:
        return self.points == EXECUTED or bool(self.whole_functions)

    def points_on(self, machine: MachineSpec, kernel: str) -> Sequence[FoundPoint]:
        """The probe points on a machine and a kernel.

        Until a guest has found them, ``executed`` is like the benchmark's own, ``SYMBOL+*`` a single one of that name.
        """
        points = self._found.get((machine_id(machine), kernel))
        return points or [FoundPoint(point) for point in self.named_points] or [FoundPoint(None)]

    def with_found(self, points: Mapping[tuple[str, str], Sequence[FoundPoint]]) -> CallsTable:
        table = self.model_copy()
        table._found = points
        return table

    def conflicts(self) -> Iterator[Problem]:
        is_counted = self.benchmark.is_counted
        yield from self._program_conflicts() if is_counted else self._scatter_conflicts()
        if self.are_counted:
            yield from self._counted_conflicts()
        if self.takes_turns:
            yield from self._turns_conflicts()
        needs_points = set(self.probes) != {BASELINE} if is_counted else self.benchmark.own is not None
        if needs_points and self.points is None:
            why = "" if is_counted else "with a workload of your own, "
            yield Problem(("points",), f"missing; {why}name the functions to probe")
        yield from self._file_conflicts()
        # Only the guest knows whether a user's image has bpftrace.
        may = self.image is not None and ("/" in self.image or "bpftrace" in image_recipe(self.image).packages)
        for index, probe in enumerate(self.probes):
            if is_one_liner(probe) and not may:
                lack = "bpftrace is in an image" if self.image is None else f"image {self.image} has no bpftrace"
                why = f"{lack}: set image: {IMAGE}, or one of your own that has it"
                yield Problem(("probes", index), f"found {shown(probe)}; {why}")
        yield from super().conflicts()

    def _program_conflicts(self) -> Iterator[Problem]:
        name = f"benchmark '{COUNTED_BENCHMARK}'"
        if self.clock == "wall":
            yield Problem(("clock",), f"found wall; {name} counts instructions")
        if not _FEWEST_RUNS <= self.repeats <= MOST_COUNTED_RUNS:
            why = f"expected {_FEWEST_RUNS} to {MOST_COUNTED_RUNS} runs: the counts of all share 64 MiB"
            yield Problem(("benchmark", "repeats"), f"found {self.repeats}; {why}")
        elif self.repeats % 2 == 0:
            why = "expected an odd number, since the median run is printed"
            yield Problem(("benchmark", "repeats"), f"found {self.repeats}; {why}")
        if self.profile:
            yield Problem(("profile",), f"{name} always has one, by system call; leave it out")
        for index, handler in enumerate(self.handlers):
            if handler not in _COUNTED_HANDLERS:
                yield Problem(("handlers", index), f"found {handler}; {name} takes {' or '.join(_COUNTED_HANDLERS)}")

    def _scatter_conflicts(self) -> Iterator[Problem]:
        scatters = self.benchmark.is_program or self.clock == "wall"
        if scatters and self.repeats < FEWEST_WALL_REPEATS:
            why = f"an interval needs at least {FEWEST_WALL_REPEATS} samples"
            who = "a program" if self.benchmark.is_program else "clock 'wall'"
            yield Problem(("benchmark", "repeats"), f"found {self.repeats}; {who} needs more: {why}")
        if self.profile and scatters:
            why = f"{self._scattering}, so nothing could prove a profile"
            yield Problem(("profile",), f"found {', '.join(self.profile)}; {why}")

    def _turns_conflicts(self) -> Iterator[Problem]:
        if self.clock == "wall":
            yield Problem(("clock",), "found wall; calls in turns are counted in instructions")
        if self.are_counted:
            yield Problem(("points",), "calls in turns are made at points that the experiment names")
        if self.profile:
            yield Problem(("profile",), "calls in turns have none; leave it out")

    def _file_conflicts(self) -> Iterator[Problem]:
        if self.benchmark.own is not None and self.benchmark.own.has_loader and self.image is None:
            why = "set image: debian-amd64, or another that has them, or link it with -static"
            name = self.benchmark.own.file.name
            yield Problem(
                ("benchmark", "file"), f"found {name}; it needs shared libraries: {why}", conflicting=("image",)
            )
        libraries = [find_library(library) for library in self.benchmark.libraries or ()]
        names = [library.name for library in libraries]
        where = ("benchmark", "libraries")
        for index, library in enumerate(libraries):
            if library.name in names[:index]:
                yield Problem((*where, index), f"found another {library.name}; a point in it would have two places")
            if library.file is None and self.image is not None and is_user_disk(self.image):
                why = "a disk of your own is not looked into: name the library's file, by a path"
                yield Problem((*where, index), f"found {library.name}; {why}", conflicting=("image",))
        if libraries and self.image is None:
            why = "what loads shared libraries is in an image: set image: debian-amd64, or debian-i386"
            yield Problem(where, f"found {', '.join(names)}; {why}")
        for index, point in enumerate(self.named_points):
            is_named = self.benchmark.own is not None and not self.benchmark.is_counted
            if not is_named and point.file is not None:
                why = "only the program of benchmark 'workload' has functions to name"
                yield Problem(("points", index), f"found '{point}'; {why}", conflicting=("benchmark", "name"))
            if point.library is not None and point.library not in names:
                why = f"the workload is linked with {', '.join(names) or 'no library'}: add it to benchmark.libraries"
                yield Problem(("points", index), f"found '{point}'; {why}", conflicting=where)

    def _counted_conflicts(self) -> Iterator[Problem]:
        whole = self.whole_functions
        points = ", ".join(map(str, whole)) or EXECUTED
        for index, point in enumerate(self.named_points):
            if point.offset is not None and Point(point.symbol, is_whole=True) in whole:
                yield Problem(("points", index), f"found '{point}'; {point.symbol}+* has it already")
        if self.benchmark.is_program or self.clock == "wall":
            yield Problem(("points",), f"found {points}; {self._scattering}, so it is not known what they execute")
        if self.benchmark.hits != 1:
            why = f"points: {points} finds out how often a call enters each; leave it out"
            yield Problem(("benchmark", "hits"), why)
        if self.reference is not None:
            yield Problem(("reference",), f"nothing is published of points: {points}; leave it out")

    def foreign_rows(self, rows: Mapping[str, str]) -> Iterator[Problem]:
        for index, probe in enumerate(self.probes):
            if probe_in_catalogue(probe) is None and probe in rows and rows[probe] not in benchmarks():
                sentence = f"found '{probe}'; with benchmark '{self.benchmark.name}': it is a row of '{rows[probe]}'"
                yield Problem(("probes", index), sentence, conflicting=("benchmark", "name"))


@dataclass(frozen=True)
class CallTask:
    """``calls`` calls a sample, each entering the probe point ``hits`` times.

    ``refusal`` is why the cell's point cannot be probed. ``call`` names a system call that is made with ``arguments``
    and must return what is ``expected``. ``file`` is a user's workload, linked with shared ``libraries``, which are
    names in an image or absolute paths. ``run`` is a shell's command; with ``is_counted`` a run is counted by system
    call.
    """

    kind: ProbeKind = field(compare=False)
    calls: int
    entry: Entry
    call: str | None
    arguments: tuple[Argument, ...]
    file: str | None
    hits: int
    expected: Expected | None
    refusal: str | None = None
    libraries: tuple[str, ...] = ()
    run: str | None = None
    is_counted: bool = False


CallCell = Cell[CallTask]


def call_cells(name: str | None, table: CallsTable) -> Iterator[CallCell]:
    """The cells of each machine and kernel, by point and handler, baselines first."""
    for place, probes in table.places(name):
        for point, handler in product(table.points_on(place.machine, place.kernel), table.handlers):
            is_known = point.point is not None or table.points != EXECUTED
            # A refused point needs no baseline; where the points are not known yet, only the baseline is measured.
            measured = [probe for probe in probes if (point.refusal is None if probe == BASELINE else is_known)]
            yield from (_cell(table, place, point, handler, probe) for probe in measured)


def profiled_cell(table: CallsTable, machine: MachineSpec, kernel: str) -> CallCell:
    """A cell that makes the table's calls without a probe, in a guest that counts instructions."""
    return replace(
        _cell(table, MatrixRow(None, machine, kernel), FoundPoint(None), "noop", BASELINE), profile=("symbols",)
    )


def _cell(table: CallsTable, place: MatrixRow, point: FoundPoint, handler: Handler, probe: str) -> CallCell:
    kind, benchmark, at = call_probe(probe), table.benchmark, point.point
    spec = benchmarks()[benchmark.name]
    call, arguments = spec.call or benchmark.call, benchmark.arguments or spec.arguments
    workload = None if benchmark.file is None else probe_name(Path(benchmark.file))
    document, column = (
        None if table.reference is None else reference_table(table.reference),
        published_column(kind.name),
    )
    published = None
    if document is not None and column is not None and column in document.columns:
        average, overhead = document.average(column), document.overhead(column)
        published = ReferenceValue(table=document.id, value=average, overhead=overhead, unit=document.unit)
    is_exact = table.clock != "wall" and not benchmark.is_program and not table.takes_turns
    refusal = point.refusal
    if refusal is None and point.place is not None:
        refusal = refusal_of(kind, point.place)
    # A cell's id has no colon, because it is part of file names and of URLs.
    here = (handler, *(() if at is None else (str(at).replace(":", "="),)))
    parameters: dict[str, str | int | None] = {
        CALL: call,
        ARGUMENTS: phrase(json.dumps(arguments, default=dict))
        if call or (benchmark.is_program and not benchmark.run)
        else None,
        "expect": benchmark.expect,
        WORKLOAD: workload if benchmark.run is None else phrase(benchmark.run),
        "libraries": phrase(", ".join(find_library(library).name for library in benchmark.libraries or ())) or None,
        AT: None if at is None else str(at),
        POINTS: None if at is None else at.found_by,
        **table.guest_parameters,
        KERNEL_MODULES: phrase(", ".join(table.kernel_modules or ())) or None,
        **module_parameters(kind),
        IN_TURNS: 1 if table.takes_turns else None,
        # A one-liner heads its column; its name in results ends with a digest.
        ONE_LINER: None if kind.one_liner is None else shortened(kind.one_liner),
    }
    return table.cell(
        place,
        (kind.name, *here),
        probe=kind.name,
        handler=handler,
        metric=PER_RUN if benchmark.is_program else PER_CALL,
        repeats=table.repeats,
        task=CallTask(
            kind=kind,
            calls=benchmark.calls,
            entry=benchmark.entry,
            call=call,
            arguments=benchmark.arguments,
            file=benchmark.file,
            hits=benchmark.hits if point.hits is None else point.hits,
            expected=benchmark.expect,
            refusal=refusal,
            libraries=benchmark.libraries or (),
            run=benchmark.run,
            is_counted=benchmark.is_counted,
        ),
        point=at,
        parameters={name: value for name, value in parameters.items() if value is not None},
        published=published,
        compared_with=() if probe == BASELINE or point.refusal is not None else (place.id(BASELINE, *here),),
        counts_classes=is_exact and place.machine.cpu in priced_cpus(),
        takes_turns=table.takes_turns,
        kernel_modules=table.kernel_modules or (),
    )
