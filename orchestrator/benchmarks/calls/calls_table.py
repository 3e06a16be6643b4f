# SPDX-License-Identifier: GPL-2.0-only
"""A table of calls in an experiment file: its points, probes and handlers, and which of them go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

from pydantic import AfterValidator, BeforeValidator, PrivateAttr, ValidationInfo

from orchestrator.benchmarks.calls.benchmarks import COUNTED_BENCHMARK, benchmarks
from orchestrator.benchmarks.calls.call_benchmark import CallsBenchmark
from orchestrator.catalog.image_recipes import image as image_recipe
from orchestrator.catalog.probes import BASELINE, IMAGE, Handler, is_one_liner, probe_in_catalogue
from orchestrator.catalog.tools import TOOLS_IMAGE, is_script, is_tool, script_command, tool_command
from orchestrator.catalog.user_disks import is_user_disk
from orchestrator.catalog.user_files import find_library
from orchestrator.catalog.words import ProfilePart, ProfilePartWanted
from orchestrator.experiment import fields as file_fields
from orchestrator.experiment.cell import machine_id
from orchestrator.experiment.fields import EXECUTED, Entries, one_of
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.experiment.problems import Problem, shown
from orchestrator.experiment.source import Quoted
from orchestrator.experiment.table import DEFAULT_REPEATS, FEWEST_WALL_REPEATS, ProbedTable
from orchestrator.probes.placement import ProbePlace
from orchestrator.probes.point import Point
from orchestrator.results.contract import MOST_COUNTED_RUNS

_FEWEST_RUNS, _RUNS = 3, 7
"""Runs that are counted, fewest and by default."""
_COUNTED_HANDLERS: tuple[Handler, ...] = ("noop", "count")


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
        yield from self._point_conflicts()
        # Only the guest knows whether a user's image has bpftrace.
        may = self.image is not None and ("/" in self.image or "bpftrace" in image_recipe(self.image).packages)
        for index, probe in enumerate(self.probes):
            if is_one_liner(probe) and not may:
                lack = "bpftrace is in an image" if self.image is None else f"image {self.image} has no bpftrace"
                why = f"{lack}: set image: {IMAGE}, or one of your own that has it"
                yield Problem(("probes", index), f"found {shown(probe)}; {why}")
            elif self.image is None and (is_tool(probe) or is_script(probe)):
                command = tool_command(probe) if is_tool(probe) else script_command(probe)
                if not command.is_static:
                    why = f"{command.program} is in an image: set image: {TOOLS_IMAGE}, or one of your own that has it"
                    yield Problem(("probes", index), f"found {shown(command.title)}; {why}")
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
        for index, probe in enumerate(self.probes):
            if is_one_liner(probe) or is_tool(probe) or is_script(probe):
                why = "between calls in turns nothing reads what its programs send, and its buffers fill up"
                yield Problem(("probes", index), f"found {shown(probe)}; {why}")

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

    def _point_conflicts(self) -> Iterator[Problem]:
        for index, point in enumerate(self.named_points):
            check = self._image_point_conflicts if self.benchmark.is_counted else self._workload_point_conflicts
            yield from check(index, point)

    def _workload_point_conflicts(self, index: int, point: Point) -> Iterator[Problem]:
        """What is wrong with a point for calls: it is in the kernel, in a C file's program, or in its libraries."""
        names = [find_library(library).name for library in self.benchmark.libraries or ()]
        if self.benchmark.own is None and point.file is not None:
            why = "only the program of benchmark 'workload' has functions to name"
            yield Problem(("points", index), f"found '{point}'; {why}", conflicting=("benchmark", "name"))
        if point.is_in_path:
            why = "a C file calls libraries, by their names, such as libc.so.6:malloc"
            yield Problem(("points", index), f"found '{point}'; {why}", conflicting=("benchmark", "name"))
        elif point.library is not None and point.library not in names:
            why = f"the workload is linked with {', '.join(names) or 'no library'}: add it to benchmark.libraries"
            yield Problem(("points", index), f"found '{point}'; {why}", conflicting=("benchmark", "libraries"))

    def _image_point_conflicts(self, index: int, point: Point) -> Iterator[Problem]:
        """What is wrong with a point for runs of a program: it is in the kernel, or in a file of the image."""
        where = ("points", index)
        if point.file is not None and point.library is None:
            why = f"benchmark '{COUNTED_BENCHMARK}' names programs by their paths in the image, such as /bin/cat:main"
            yield Problem(where, f"found '{point}'; {why}", conflicting=("benchmark", "name"))
        elif point.file is not None and (self.image is None or is_user_disk(self.image)):
            why = "its file is looked for in an image of the lab or a recipe: set image: debian-amd64"
            yield Problem(where, f"found '{point}'; {why}", conflicting=("image",))
        elif point.file is not None and self.benchmark.file is not None:
            why = "points in user space are of commands (run)"
            yield Problem(where, f"found '{point}'; {why}", conflicting=("benchmark", "file"))

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
