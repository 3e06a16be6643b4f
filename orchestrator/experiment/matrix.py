# SPDX-License-Identifier: GPL-2.0-only
"""One table of an experiment: a matrix of machines, kernels, probes and handlers, and what each cell measures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo, model_validator

from orchestrator.benchmarks.calls import Argument
from orchestrator.catalog.benchmarks import Entry, benchmarks
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.own_workload import OwnWorkload, find_workload
from orchestrator.catalog.probes import BASELINE, Handler
from orchestrator.catalog.reference import reference_tables
from orchestrator.experiment import fields
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.problems import Problem, conflict, mismatch, shown, wrong
from orchestrator.results.contract import Clock

DEFAULT_MEMORY = "256M"
DEFAULT_REPEATS: dict[Clock, int] = {"instructions": 4, "wall": 12}
"""Samples of the same work: exact ones are equal, of scattered ones an interval is made.

Of twelve, the 95 % interval of the median leaves out two on either side, which is what one hiccup of the host between
two samples spoils.
"""
FEWEST_WALL_REPEATS = 6
"""With fewer samples no interval of the median covers it with 95 %."""
_MOST_ARGUMENTS = 6
_LIKE_A_NUMBER = re.compile(r"[-+]?(0[xo])?[0-9a-fA-F]*[0-9][0-9a-fA-F]*")

Kernel = Annotated[str, BeforeValidator(fields.kernel)]
Probe = Annotated[str, BeforeValidator(fields.probe)]
Point = Annotated[str, BeforeValidator(fields.point)]


class Strict(BaseModel):
    """A part of an experiment file: read-only, of exactly these keys and types."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Machine(Strict):
    """A CPU model, how many of it, and memory (MiB with an ``M``)."""

    cpu: Annotated[str, BeforeValidator(fields.cpu)]
    smp: Annotated[int, whole(1, 16)] = 1
    memory: Annotated[str, BeforeValidator(fields.memory)] = DEFAULT_MEMORY

    @property
    def memory_mib(self) -> int:
        """The guest's memory in MiB."""
        return int(self.memory.removesuffix("M"))


def _few(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) > _MOST_ARGUMENTS:
        found = f"{len(value)} arguments" if isinstance(value, list | tuple) else shown(value)
        raise wrong(f"found {found}; expected a list of at most {_MOST_ARGUMENTS}")
    return tuple(value)


class Benchmark(Strict):
    """What each cell runs: ``repeats`` samples of ``calls`` calls, entering the kernel by ``entry``.

    Without ``repeats``, as many as the clock needs. A system call has a ``call`` and ``arguments``; a workload of the
    user's own a ``file``: a C file, or a static program (``arguments`` are its own), of which a sample is a whole run.
    ``hits`` is how often each call, or each run, enters the probe point.
    """

    name: Annotated[str, one_of(benchmarks)]
    calls: Annotated[int, whole(1, 1_000_000)] = 5000
    repeats: Annotated[int, whole(1, 100)] | None = None
    entry: Annotated[Entry, one_of(lambda: get_args(Entry))] = "auto"
    call: Annotated[str, BeforeValidator(fields.call)] | None = None
    arguments: Annotated[tuple[Annotated[Argument, BeforeValidator(fields.argument)], ...], BeforeValidator(_few)] = ()
    file: Annotated[str, BeforeValidator(fields.file)] | None = None
    hits: Annotated[int, whole(1, 1_000_000)] = 1

    @property
    def own(self) -> OwnWorkload | None:
        """The user's own workload, if it is one."""
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
        """Keys that this benchmark would pass over."""
        spec = benchmarks()[self.name]
        allowed = {
            "entry": bool(spec.entries),
            "call": bool(spec.entries) and spec.call is None,
            "file": self.name == "workload",
            "arguments": (bool(spec.entries) and spec.call is None) or self.is_program,
            "calls": not self.is_program,
        }
        for key, may in allowed.items():
            if not may and key in self.model_fields_set and getattr(self, key) != type(self).model_fields[key].default:
                what = "a program is run whole" if self.is_program else f"benchmark '{self.name}' has no such key"
                yield Problem((key,), f"{what}; leave it out")
        if self.is_program and not all(isinstance(argument, str) for argument in self.arguments):
            yield Problem(("arguments",), "a program's arguments are texts; put numbers in quotes")
        for index, argument in enumerate(() if self.is_program else self.arguments):
            if isinstance(argument, str) and _LIKE_A_NUMBER.fullmatch(argument):
                yield Problem(("arguments", index), f"found {argument!r}, a text; numbers are decimal, within 64 bits")


def _mapping(value: object) -> object:
    if not isinstance(value, dict):
        raise mismatch(value, "expected a mapping of probe to kernel, such as {kretprobe: lab-i386-smp-preempt}")
    return value


def _with_repeats(benchmark: Benchmark, info: ValidationInfo) -> Benchmark:
    clock: Clock | None = info.data.get("clock")  # none where it is wrong itself
    if benchmark.repeats is not None or clock is None:
        return benchmark
    # A program's runs scatter on the exact clock as well.
    return benchmark.model_copy(update={"repeats": DEFAULT_REPEATS["wall" if benchmark.is_program else clock]})


class Matrix(Strict):
    """Machines, kernels, points, probes and handlers, of which every combination is a cell, and what each measures.

    Without ``points`` the benchmark's own is probed. ``kernel_for`` names another kernel for single probes.
    ``time_limit`` is in seconds of the host's time for one cell.
    """

    reference: Annotated[str, one_of(reference_tables)] | None = None
    clock: Annotated[Clock, one_of(lambda: get_args(Clock))] = "instructions"
    kernels: Entries[Kernel]
    machines: Entries[Machine]
    points: Entries[Point] | None = None
    probes: Entries[Probe]
    kernel_for: Annotated[dict[Probe, Kernel], BeforeValidator(_mapping)] = {}
    handlers: Entries[Annotated[Handler, one_of(lambda: get_args(Handler))]] = ("noop",)
    benchmark: Annotated[Benchmark, AfterValidator(_with_repeats)]
    time_limit: Annotated[int, whole(1, 86_400)] = 120

    @property
    def repeats(self) -> int:
        """Samples of each cell."""
        return self.benchmark.repeats or DEFAULT_REPEATS[self.clock]

    def resolved(self) -> dict[str, Any]:
        """The matrix as plain values, every default written out."""
        return self.model_dump(mode="json", include=set(Matrix.model_fields))

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        problems = [*self._conflicts(), *self._exceptions()]
        if problems:
            raise conflict(problems)
        return self

    def _conflicts(self) -> Iterator[Problem]:
        for index, machine in enumerate(self.machines):
            if self.clock == "instructions" and machine.smp != 1:
                why = "QEMU counts instructions exactly with one virtual CPU only, and a second never comes up"
                yield Problem(("machines", index, "smp"), f"found {machine.smp}; clock 'instructions' needs 1: {why}")
            for kernel in self.kernels:
                yield from _objections(kernel, machine, ("machines", index, "cpu"), ("kernels",))
        scatters = self.benchmark.is_program or self.clock == "wall"
        if scatters and self.repeats < FEWEST_WALL_REPEATS:
            why = f"an interval needs at least {FEWEST_WALL_REPEATS} samples"
            who = "a program" if self.benchmark.is_program else "clock 'wall'"
            yield Problem(("benchmark", "repeats"), f"found {self.repeats}; {who} needs more: {why}")
        if self.benchmark.own is not None and self.points is None:
            yield Problem(("points",), "missing; of a workload of your own, say which functions of the kernel to probe")

    def _exceptions(self) -> Iterator[Problem]:
        for probe, kernel in self.kernel_for.items():
            if probe == BASELINE or probe not in self.probes:
                what = "a baseline is measured on every kernel" if probe == BASELINE else "it is not among the probes"
                yield Problem(("kernel_for", probe), what)
            for machine in self.machines:
                yield from _objections(kernel, machine, ("kernel_for", probe), ("machines",))


def _objections(
    kernel: str, machine: Machine, path: tuple[int | str, ...], other: tuple[int | str, ...]
) -> Iterator[Problem]:
    objection = kernel_spec(kernel).objection(cpu(machine.cpu))
    if objection:
        yield Problem(path, objection, other=other)
