# SPDX-License-Identifier: GPL-2.0-only
"""A table of calls: the keys of its benchmark, and its cells' points, probes and handlers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import AfterValidator, BeforeValidator, PrivateAttr, ValidationInfo, model_validator

from orchestrator.benchmarks.calls import fields
from orchestrator.benchmarks.calls.benchmarks import Entry, benchmarks
from orchestrator.benchmarks.calls.call_programs import Argument
from orchestrator.benchmarks.calls.outcome import Expected
from orchestrator.catalog.cpu_caches import cpu_caches
from orchestrator.catalog.images import image as image_recipe
from orchestrator.catalog.one_liner import IMAGE, is_one_liner
from orchestrator.catalog.probes import ProbeKind
from orchestrator.catalog.profile_parts import ProfilePart
from orchestrator.catalog.user_disk import is_user_disk
from orchestrator.catalog.user_library import find_library
from orchestrator.catalog.user_workload import UserWorkload, find_workload
from orchestrator.experiment.cell import machine_id, whole_function
from orchestrator.experiment.file import fields as file_fields
from orchestrator.experiment.file.fields import EXECUTED, Entries, one_of, whole
from orchestrator.experiment.file.problems import Problem, conflict, shown
from orchestrator.experiment.file.source import Quoted
from orchestrator.experiment.machine import Machine
from orchestrator.experiment.program_point import in_program
from orchestrator.experiment.table import DEFAULT_REPEATS, FEWEST_WALL_REPEATS, BenchmarkChoice, ProbedTable
from orchestrator.probes.placement import ProbePlace, refusal_of


class CallsBenchmark(BenchmarkChoice):
    """What each cell runs: samples of many calls, or runs of a program."""

    calls: Annotated[int, whole(1, 1_000_000)] = 5000
    """Calls in a sample. A program is run whole, and has no such key."""
    repeats: Annotated[int, whole(1, 100)] | None = None
    """Samples of each cell. Where they scatter, by clock ``wall`` or of a program, at least 6, and 12 by default."""
    entry: Annotated[Entry, one_of(lambda: get_args(Entry))] = "auto"
    """The way into the kernel, of ``gtodbench`` and ``syscall``: ``auto`` is the fastest that CPU and kernel have.

    ``sysenter`` is i386's, ``syscall`` x86_64's.
    """
    call: Annotated[str, BeforeValidator(fields.call)] | None = None
    """The system call; required of ``syscall``, and of no other benchmark."""
    arguments: Annotated[
        tuple[Annotated[Argument, BeforeValidator(fields.argument)], ...], BeforeValidator(fields.arguments)
    ] = ()
    """What each call of ``syscall`` passes, or the texts that a program of ``workload`` gets."""
    expect: Annotated[Expected, BeforeValidator(fields.expected)] | None = None
    """What each call of ``gtodbench`` and ``syscall`` must return, else the cell fails. Without it, anything.

    Of ``workload``, what each system call of ``workload()`` must return.
    """
    file: Annotated[str, BeforeValidator(fields.file)] | None = None
    """The workload; required of ``workload``. A C file defines ``workload()``; of a program a sample is a whole run."""
    libraries: Entries[Annotated[str, BeforeValidator(fields.library)]] | None = None
    """Shared libraries that a C file of ``workload`` is linked with; the table needs an ``image``."""
    hits: Annotated[int, whole(1, 1_000_000)] = 1
    """How often one call, or one run of a program, enters the point."""

    @property
    def own(self) -> UserWorkload | None:
        """The user's workload, if it is one."""
        return find_workload(self.file) if self.file is not None else None

    @property
    def is_program(self) -> bool:
        """Whether a sample is a whole run of a program."""
        return self.own is not None and self.own.kind == "program"

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        problems = list(self._superfluous())
        spec = benchmarks()[self.name]
        if self.name == "workload" and self.file is None:
            problems.append(Problem(("file",), "missing; benchmark 'workload' runs a file of your own"))
        if spec.entries and spec.call is None and self.call is None:
            problems.append(
                Problem(("call",), f"missing; benchmark '{self.name}' makes a system call, such as getppid")
            )
        if problems:
            raise conflict(problems)
        return self

    def _superfluous(self) -> Iterator[Problem]:
        """Keys that this benchmark would ignore."""
        spec = benchmarks()[self.name]
        names_its_call = bool(spec.entries) and spec.call is None
        allowed = {
            "entry": bool(spec.entries),
            "call": names_its_call,
            "file": self.name == "workload",
            "libraries": self.name == "workload" and not self.is_program,
            "arguments": names_its_call or self.is_program,
            "expect": not self.is_program,
            "calls": not self.is_program,
        }
        for key, may in allowed.items():
            if not may and key in self.model_fields_set and getattr(self, key) != type(self).model_fields[key].default:
                what = "a program is run whole" if self.is_program else f"benchmark '{self.name}' has no such key"
                yield Problem((key,), f"{what}; leave it out")
        if self.is_program and not all(isinstance(argument, str) for argument in self.arguments):
            yield Problem(("arguments",), "a program's arguments are texts; put numbers in quotes")


def _may_have_bpftrace(image: str | None) -> bool:
    """Whether a guest may have bpftrace, as far as an image's name shows: only the guest knows of a user's own."""
    return image is not None and ("/" in image or "bpftrace" in image_recipe(image).packages)


def _with_repeats(benchmark: CallsBenchmark, info: ValidationInfo) -> CallsBenchmark:
    clock = info.data.get("clock")  # None where the clock itself is invalid
    if benchmark.repeats is not None or clock is None:
        return benchmark
    # A program's runs scatter on the exact clock as well.
    return benchmark.model_copy(update={"repeats": DEFAULT_REPEATS["wall" if benchmark.is_program else clock]})


@dataclass(frozen=True)
class FoundPoint:
    """A probe point by its name, and why it cannot be probed; ``hits``: how often a call enters it, where found out.

    One that ``points: [SYMBOL+*]`` stands for is ``among`` that entry's, at ``place``.
    """

    name: str
    hits: int | None = None
    refusal: str | None = None
    among: str | None = None
    place: ProbePlace | None = None

    def refusal_of(self, kind: ProbeKind) -> str | None:
        """Why no probe of a kind can be at it; None where nothing is known against it."""
        if self.refusal is not None or self.place is None:
            return self.refusal
        return refusal_of(kind, self.place)


class CallsTable(ProbedTable):
    """Machines, kernels, points, probes and handlers, of which every combination is a cell."""

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = get_args(ProfilePart)
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
        """The table as plain values. Texts to point to are in quotes: ``O_RDONLY`` without them is a number."""
        plain = super().resolved()
        arguments = plain["benchmark"]["arguments"]
        plain["benchmark"]["arguments"] = [Quoted(one) if isinstance(one, str) else one for one in arguments]
        return plain

    @property
    def repeats(self) -> int:
        """Samples of each cell."""
        return self.benchmark.repeats or DEFAULT_REPEATS[self.clock]

    @property
    def _scattering(self) -> str:
        """Why samples scatter, where they do."""
        return "a program's runs scatter" if self.benchmark.is_program else "clock 'wall' counts no instructions"

    @property
    def unknown(self) -> str | None:
        """What of its cells is not known yet."""
        if self.points == EXECUTED and not self._found:
            return f"points: {EXECUTED}: a guest has to make the calls first"
        points = [point for found in self._found.values() for point in found]
        if self.whole_functions and (not points or any(one.place and one.hits is None for one in points)):
            named = ", ".join(self.whole_functions)
            return f"points: {named}: how often a call comes to each instruction, a guest has to count first"
        if instructions := [one for one in self._listed if "+" in one and in_program(one) is None]:
            return (
                f"points: {', '.join(instructions)}: which probes an instruction takes, its kernel says as it is tried"
            )
        return None

    @property
    def whole_functions(self) -> Sequence[str]:
        """The points ``SYMBOL+*``, each of which stands for every instruction of a function."""
        return [point for point in self._listed if whole_function(point) is not None]

    @property
    def _listed(self) -> Sequence[str]:
        return () if self.points is None or self.points == EXECUTED else self.points

    @property
    def are_counted(self) -> bool:
        """Whether it has points that depend on what the calls execute."""
        return self.points == EXECUTED or bool(self.whole_functions)

    def points_on(self, machine: Machine, kernel: str) -> Sequence[FoundPoint | None]:
        """The probe points of a machine and a kernel; None stands for the benchmark's own.

        Of ``points: executed`` there is only that one until they were found, of ``SYMBOL+*`` that name.
        """
        found = self._found.get((machine_id(machine), kernel))
        if found or self.points == EXECUTED:
            return found or (None,)
        return [FoundPoint(name) for name in self.points] if self.points else (None,)

    def with_found(self, found: Mapping[tuple[str, str], Sequence[FoundPoint]]) -> CallsTable:
        """The same table with all its points, by machine and kernel."""
        table = self.model_copy()
        table._found = found
        return table

    def conflicts(self) -> Iterator[Problem]:
        """Conflicts between values that are each valid alone."""
        scatters = self.benchmark.is_program or self.clock == "wall"
        if scatters and self.repeats < FEWEST_WALL_REPEATS:
            why = f"an interval needs at least {FEWEST_WALL_REPEATS} samples"
            who = "a program" if self.benchmark.is_program else "clock 'wall'"
            yield Problem(("benchmark", "repeats"), f"found {self.repeats}; {who} needs more: {why}")
        if self.profile and scatters:
            why = f"{self._scattering}, so nothing could prove a profile"
            yield Problem(("profile",), f"found {', '.join(self.profile)}; {why}")
        unknown = [one.cpu for one in self.machines if one.cpu not in cpu_caches()]
        if "caches" in (self.profile or ()) and unknown:
            known = ", ".join(cpu_caches())
            yield Problem(
                ("profile",), f"found caches; the caches of '{unknown[0]}' are not known, only those of {known}"
            )
        if self.are_counted:
            yield from self._counted_conflicts()
        if self.benchmark.own is not None and self.points is None:
            yield Problem(("points",), "missing; with a workload of your own, name the functions to probe")
        yield from self._program_conflicts()
        yield from self._library_conflicts()
        for index, probe in enumerate(self.probes):
            if is_one_liner(probe) and not _may_have_bpftrace(self.image):
                lack = "bpftrace is in an image" if self.image is None else f"image {self.image} has no bpftrace"
                why = f"{lack}: set image: {IMAGE}, or one of your own that has it"
                yield Problem(("probes", index), f"found {shown(probe)}; {why}")
        yield from super().conflicts()

    def _program_conflicts(self) -> Iterator[Problem]:
        """Points in a program that has none to name."""
        for index, point in enumerate(self._listed if self.benchmark.own is None else ()):
            if in_program(point) is not None:
                why = "only the program of benchmark 'workload' has functions to name"
                yield Problem(("points", index), f"found '{point}'; {why}", other=("benchmark", "name"))

    def _library_conflicts(self) -> Iterator[Problem]:
        """Libraries that a guest cannot have, and points in others."""
        libraries = [find_library(one) for one in self.benchmark.libraries or ()]
        names = [library.name for library in libraries]
        where = ("benchmark", "libraries")
        for index, library in enumerate(libraries):
            if library.name in names[:index]:
                yield Problem((*where, index), f"found another {library.name}; a point in it would have two places")
            if library.file is None and self.image is not None and is_user_disk(self.image):
                why = "a disk of your own is not looked into: name the library's file, by a path"
                yield Problem((*where, index), f"found {library.name}; {why}", other=("image",))
        if libraries and self.image is None:
            why = "what loads shared libraries is in an image: set image: debian-amd64, or debian-i386"
            yield Problem(where, f"found {', '.join(names)}; {why}")
        for index, point in enumerate(self._listed):
            place = in_program(point)
            if place is not None and place.library is not None and place.library not in names:
                why = f"the workload is linked with {', '.join(names) or 'no library'}: add it to benchmark.libraries"
                yield Problem(("points", index), f"found '{point}'; {why}", other=where)

    def _counted_conflicts(self) -> Iterator[Problem]:
        """What does not go together with points that a profile finds."""
        points = ", ".join(self.whole_functions) or EXECUTED
        for index, point in enumerate(self._listed):
            symbol, plus, offset = point.partition("+")
            if plus and offset != "*" and f"{symbol}+*" in self.whole_functions:
                yield Problem(("points", index), f"found '{point}'; {symbol}+* has it already")
        if self.benchmark.is_program or self.clock == "wall":
            yield Problem(("points",), f"found {points}; {self._scattering}, so it is not known what they execute")
        if self.benchmark.hits != 1:
            yield Problem(
                ("benchmark", "hits"), f"points: {points} finds out how often a call enters each; leave it out"
            )
        if self.reference is not None:
            yield Problem(("reference",), f"nothing is published of points: {points}; leave it out")

    def foreign_rows(self, rows: Mapping[str, str]) -> Iterator[Problem]:
        """What is wrong with rows of other kinds of benchmark among the probes."""
        for index, probe in enumerate(self.probes):
            if probe in rows and rows[probe] not in benchmarks():
                sentence = f"found '{probe}'; with benchmark '{self.benchmark.name}': it is a row of '{rows[probe]}'"
                yield Problem(("probes", index), sentence, other=("benchmark", "name"))
