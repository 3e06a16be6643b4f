# SPDX-License-Identifier: GPL-2.0-only
"""One table of an experiment: a matrix of machines, kernels, probes and handlers, and what each cell measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from orchestrator.benchmarks.calls.benchmark import Benchmark
from orchestrator.benchmarks.markers.rows import PREFIX
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE, Handler
from orchestrator.catalog.reference import reference_tables
from orchestrator.experiment.file import fields
from orchestrator.experiment.file.fields import Entries, one_of, whole
from orchestrator.experiment.file.problems import Problem, conflict, mismatch
from orchestrator.experiment.file.strict import Strict
from orchestrator.guest.machine import ChannelKind
from orchestrator.results.contract import Clock
from orchestrator.run.guest_disks import GuestDisks, unsupported_reason

DEFAULT_MEMORY = "256M"
DEFAULT_REPEATS: dict[Clock, int] = {"instructions": 4, "wall": 12}
"""Samples of the same work: exact ones are equal, of scattered ones an interval is made.

Of twelve, the 95 % interval of the median leaves out two on either side, which is what one hiccup of the host between
two samples spoils.
"""
FEWEST_WALL_REPEATS = 6
"""With fewer samples no interval of the median covers it with 95 %."""

Kernel = Annotated[str, BeforeValidator(fields.kernel)]
Probe = Annotated[str, BeforeValidator(fields.probe)]
Point = Annotated[str, BeforeValidator(fields.point)]


class Machine(Strict):
    """A CPU model, how many of it, and memory (MiB with an ``M``)."""

    cpu: Annotated[str, BeforeValidator(fields.cpu)]
    smp: Annotated[int, whole(1, 16)] = 1
    memory: Annotated[str, BeforeValidator(fields.memory)] = DEFAULT_MEMORY

    @property
    def memory_mib(self) -> int:
        """The guest's memory in MiB."""
        return int(self.memory.removesuffix("M"))


def mapping_of_kernels(value: object) -> object:
    """Kernels by the probes that are measured there."""
    if not isinstance(value, dict):
        raise mismatch(value, "expected a mapping of probe to kernel, such as {kretprobe: lab-i386-smp-preempt}")
    return value


def _with_defaults(benchmark: Benchmark, info: ValidationInfo) -> Benchmark:
    clock: Clock | None = info.data.get("clock")  # none where it is wrong itself
    if benchmark.mass is not None:
        return benchmark.model_copy(update={"sizes": benchmark.sizes or tuple(benchmark.mass.sizes)})
    if benchmark.repeats is not None or clock is None:
        return benchmark
    # A program's runs scatter on the exact clock as well.
    return benchmark.model_copy(update={"repeats": DEFAULT_REPEATS["wall" if benchmark.is_program else clock]})


class Matrix(Strict):
    """Machines, kernels, points, probes and handlers, of which every combination is a cell, and what each measures.

    Guests have their programs from ``image``, or from the initramfs alone; commands reach them over ``channel``.
    Without ``points`` the benchmark's own is probed. ``kernel_for`` names another kernel for single probes.
    ``time_limit`` is in seconds of the host's time for one cell; of a benchmark of many probes, without any progress.
    """

    reference: Annotated[str, one_of(reference_tables)] | None = None
    clock: Annotated[Clock, one_of(lambda: get_args(Clock))] = "instructions"
    image: Annotated[str, BeforeValidator(fields.image)] | None = None
    channel: Annotated[ChannelKind, one_of(lambda: get_args(ChannelKind))] = "framed"
    kernels: Entries[Kernel]
    machines: Entries[Machine]
    points: Entries[Point] | None = None
    probes: Entries[Probe]
    kernel_for: Annotated[dict[Probe, Kernel], BeforeValidator(mapping_of_kernels)] = Field(default_factory=dict)
    handlers: Entries[Annotated[Handler, one_of(lambda: get_args(Handler))]] = ("noop",)
    benchmark: Annotated[Benchmark, AfterValidator(_with_defaults)]
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
        yield from machine_conflicts(self.machines, self.kernels, self.clock)
        scatters = self.benchmark.is_program or self.clock == "wall"
        if scatters and self.repeats < FEWEST_WALL_REPEATS:
            why = f"an interval needs at least {FEWEST_WALL_REPEATS} samples"
            who = "a program" if self.benchmark.is_program else "clock 'wall'"
            yield Problem(("benchmark", "repeats"), f"found {self.repeats}; {who} needs more: {why}")
        yield from self._image_conflicts()
        yield from self._row_conflicts()
        if self.benchmark.own is not None and self.points is None:
            yield Problem(("points",), "missing; of a workload of your own, say which functions of the kernel to probe")

    def _image_conflicts(self) -> Iterator[Problem]:
        if self.image is not None and self.benchmark.mass is not None:
            why = f"what benchmark '{self.benchmark.name}' does comes with the initramfs, before an image is entered"
            yield Problem(("image",), f"{why}; leave it out")
        for kernel in dict.fromkeys([*self.kernels, *self.kernel_for.values()]):
            sentence = unsupported_reason(GuestDisks(self.image, self.channel), kernel_spec(kernel))
            if sentence is not None:
                yield Problem(("channel" if self.image is None else "image",), sentence)

    def _row_conflicts(self) -> Iterator[Problem]:
        """Of benchmarks whose probes are rows of their own."""
        name = self.benchmark.name
        prefix = PREFIX if name == "markers" else f"{name}."
        for index, probe in enumerate(self.probes):
            row = fields.is_row(probe) and probe != BASELINE
            if probe != BASELINE and (row or self.benchmark.has_rows) and not (row and probe.startswith(prefix)):
                other = "markers" if probe.startswith(PREFIX) else probe.partition(".")[0]
                what = f"its rows are named {prefix}ROW" if self.benchmark.has_rows else f"it is a row of '{other}'"
                sentence = f"found '{probe}'; with benchmark '{name}': {what}"
                yield Problem(("probes", index), sentence, other=("benchmark", "name"))
        if not self.benchmark.has_rows:
            return
        if self.clock != "instructions":
            yield Problem(("clock",), f"found 'wall'; what benchmark '{name}' does is counted in instructions")
        if self.points is not None:
            yield Problem(("points",), f"benchmark '{name}' has places of its own; leave it out")
        if self.handlers != ("noop",):
            yield Problem(("handlers",), f"benchmark '{name}' has probes of its own; leave it out")

    def _exceptions(self) -> Iterator[Problem]:
        for probe, kernel in self.kernel_for.items():
            if probe == BASELINE or probe not in self.probes:
                what = "a baseline is measured on every kernel" if probe == BASELINE else "it is not among the probes"
                yield Problem(("kernel_for", probe), what)
            for machine in self.machines:
                yield from unsupported_reasons(kernel, machine, ("kernel_for", probe), ("machines",))


def machine_conflicts(machines: Sequence[Machine], kernels: Sequence[str], clock: Clock) -> Iterator[Problem]:
    """What is wrong with a table's machines for its clock and its kernels."""
    for index, machine in enumerate(machines):
        if clock == "instructions" and machine.smp != 1:
            why = "QEMU counts instructions exactly with one virtual CPU only, and a second never comes up"
            yield Problem(("machines", index, "smp"), f"found {machine.smp}; clock 'instructions' needs 1: {why}")
        for kernel in kernels:
            yield from unsupported_reasons(kernel, machine, ("machines", index, "cpu"), ("kernels",))


def unsupported_reasons(
    kernel: str, machine: Machine, path: tuple[int | str, ...], other: tuple[int | str, ...]
) -> Iterator[Problem]:
    """What is wrong with a kernel on a machine, told of the key at ``path``."""
    why_not = kernel_spec(kernel).unsupported_reason(cpu(machine.cpu))
    if why_not:
        yield Problem(path, why_not, other=other)
