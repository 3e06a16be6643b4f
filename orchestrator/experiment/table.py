# SPDX-License-Identifier: GPL-2.0-only
"""A table of an experiment: the keys that the tables of every benchmark kind have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from orchestrator.artifacts.guest_disks import unsupported_reason
from orchestrator.catalog import kernel_variants
from orchestrator.catalog.cpus import cpu_caches
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE, Handler, probe_name
from orchestrator.catalog.published_tables import reference_tables
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import ConfigError
from orchestrator.experiment import fields
from orchestrator.experiment.cell import Cell, kernel_conflicts, machine_id, rows_on
from orchestrator.experiment.fields import Entries, Strict, one_of, whole
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.experiment.problems import Problem, conflict, mismatch
from orchestrator.guest.machine import ChannelKind
from orchestrator.program import PROGRAM
from orchestrator.results.contract import Clock
from orchestrator.results.parameters import CHANNEL, IMAGE

DEFAULT_REPEATS: dict[Clock, int] = {"instructions": 4, "wall": 12}
"""Default numbers of samples.

The 95 % interval of the median of twelve leaves out two on either side, and a disturbance of the host between two
samples spoils at most both.
"""
FEWEST_WALL_REPEATS = 6
"""No interval of fewer samples covers the median with 95 %."""

Kernel = Annotated[str, BeforeValidator(fields.kernel)]
Row = Annotated[str, BeforeValidator(fields.probe)]
Points = Annotated[tuple[str, ...] | Literal["executed"], BeforeValidator(fields.points)]


def mapping_of_kernels(value: object) -> object:
    """A mapping of probe to kernel."""
    if not isinstance(value, dict):
        raise mismatch(value, "expected a mapping of probe to kernel, such as {kretprobe: lab-i386-smp-preempt}")
    return value


def _no_modelled_clock(value: object) -> object:
    if value == "modelled":
        what = "a report computes modelled time; set clock: instructions and profile: [symbols]"
        raise mismatch(value, f"{what}, then {PROGRAM} report --clock modelled")
    return value


_AXES = {"options": (fields.NO_OPTIONS,), "parameters": (fields.DEFAULT,)}
"""The keys that make several kernels of each one, with the values that make none."""


def _words(options: str) -> Sequence[str]:
    return [] if options == fields.NO_OPTIONS else options.split(kernel_variants.MARK)


@dataclass(frozen=True)
class MatrixRow:
    """A machine and a kernel whose cells, in the table ``name``, are compared with each other."""

    name: str | None
    machine: MachineSpec
    kernel: str

    @cached_property
    def spec(self) -> KernelSpec:
        return kernel_spec(self.kernel)

    def id(self, *parts: str) -> str:
        table = () if self.name is None else (self.name,)
        return "/".join((*table, machine_id(self.machine), self.spec.name, *parts))


class BenchmarkChoice(Strict):
    """What each cell of a table runs; ``name`` decides the table's benchmark kind."""

    name: Annotated[str, BeforeValidator(fields.benchmark)]
    """A benchmark of ``./lab list benchmarks``. It decides which other keys the table has."""

    def conflicts(self) -> Iterator[Problem]:
        yield from ()

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        problems = list(self.conflicts())
        if problems:
            raise conflict(problems)
        return self


class Table(Strict):
    """Machines, kernels and probes, of which every combination is a cell.

    ``PROFILE_PARTS`` are the parts of a profile that the kind supports, if it has the key ``profile``.
    """

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ()

    clock: Annotated[Clock, one_of(lambda: get_args(Clock)), BeforeValidator(_no_modelled_clock)] = "instructions"
    """What is measured: ``instructions`` exactly, on one CPU, or ``wall``, guest nanoseconds with their spread.

    Tables of markers and of scaling are always counted in instructions.
    """
    benchmark: BenchmarkChoice
    """What each cell runs."""
    reference: str | None = None
    """A published table to print with the measured one."""
    image: Annotated[str, BeforeValidator(fields.image)] | None = None
    """The system that the guest's programs come from; by default the lab's initramfs.

    Whole systems use by default the image that their work needs. Tables of scaling have none.
    """
    kernels: Entries[Kernel]
    """The kernels to measure; ``{NAME: PATH}`` names your own."""
    machines: Entries[MachineSpec]
    """The machines to measure."""
    probes: Entries[Row]
    """The probes, or the benchmark's own rows. ``none`` is the baseline, which each overhead is the difference to."""
    parameters: Entries[Annotated[str, BeforeValidator(fields.parameters)]] = (fields.DEFAULT,)
    """Kernel command lines, each a kernel of its own: ``[default, mitigations=auto]``. They follow the lab's."""
    options: Entries[Annotated[str, BeforeValidator(fields.options)]] = (fields.NO_OPTIONS,)
    """Options on top of each kernel's, which is built with them: ``[{}, {CONFIG_KFENCE: y}, ./mine.config]``."""
    kernel_for: Annotated[dict[Row, Kernel], BeforeValidator(mapping_of_kernels)] = Field(default_factory=dict)
    """Another kernel for single probes, with its own baseline. The other probes are measured on ``kernels``."""

    @property
    def profile_parts(self) -> tuple[ProfilePart, ...]:
        return getattr(self, "profile", None) or ()

    @property
    def takes_turns(self) -> bool:
        """Whether several CPUs do the work in turns, so that QEMU can count on each of them."""
        return False

    @property
    def all_kernels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.kernels, *self.kernel_for.values()]))

    @property
    def unknown(self) -> str | None:
        """What only a guest can find out about the cells; None if nothing."""
        return None

    def places(self, name: str | None) -> Iterator[tuple[MatrixRow, Sequence[str]]]:
        """Each machine and kernel of the table ``name``, with the rows measured there, the baseline first."""
        by_kernel = rows_on(self.kernels, self.probes, self.kernel_for)
        for machine in self.machines:
            yield from ((MatrixRow(name, machine, kernel), rows) for kernel, rows in by_kernel.items())

    def cell(self, place: MatrixRow, parts: Sequence[str], **overrides: Any) -> Cell[Any]:
        """A cell at a place: the table's fields, overridden by ``overrides``; ``parts`` end its id."""
        machine = place.machine
        fields: dict[str, Any] = {
            "handler": "noop",
            "benchmark": self.benchmark.name,
            "repeats": 1,
            "clock": self.clock,
            "image": self.image,
            "channel": "framed",
            "profile": self.profile_parts,
        }
        return Cell(
            id=place.id(*parts),
            table=place.name,
            cpu=machine.cpu,
            smp=machine.smp,
            memory_mib=machine.memory_mib,
            kernel=place.kernel,
            spec=place.spec,
            **{**fields, **overrides},
        )

    def resolved(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={*_AXES})

    def with_variants(self) -> Self:
        """The table with a kernel for each combination of its kernels, options and parameters."""
        kernels = []
        for kernel, options, parameters in product(self.kernels, self.options, self.parameters):
            added = [] if parameters == fields.DEFAULT else parameters.split()
            kernels.append(kernel_variants.joined(kernel, [*_words(options), *added]))
        return self.model_copy(update={"kernels": tuple(kernels), **_AXES})

    def _conflicts_of_variants(self) -> Iterator[Problem]:
        for key, none in _AXES.items():
            if self.kernel_for and getattr(self, key) != none:
                yield Problem((key,), "kernel_for names its kernels whole: write KERNEL+WORD there, and in kernels")
        for kernel, (index, options) in product(self.kernels, enumerate(self.options)):
            if options == fields.NO_OPTIONS:
                continue
            try:
                kernel_spec(kernel_variants.joined(kernel, _words(options)))
            except ConfigError as error:
                yield Problem(("options", index), f"{error.what}; {error.hint}", conflicting=("kernels",))

    def conflicts(self) -> Iterator[Problem]:
        yield from self._conflicts_of_variants()
        for index, machine in enumerate(self.machines):
            if self.clock == "instructions" and machine.smp != 1 and not self.takes_turns:
                why = "QEMU counts the instructions of one virtual CPU only; clock 'wall' and calls in_turns take more"
                yield Problem(("machines", index, "smp"), f"found {machine.smp}; clock 'instructions' needs 1: {why}")
            for kernel in self.kernels:
                yield from kernel_conflicts(kernel, machine, ("machines", index, "cpu"), ("kernels",))
        unknown = [spec.cpu for spec in self.machines if spec.cpu not in cpu_caches()]
        if "caches" in self.profile_parts and unknown:
            why = f"the caches of '{unknown[0]}' are not known, only those of {', '.join(cpu_caches())}"
            yield Problem(("profile",), f"found caches; {why}")

    def foreign_rows(self, rows: Mapping[str, str]) -> Iterator[Problem]:
        """Report rows of other benchmarks among the probes; ``rows`` maps rows to their benchmarks."""
        del rows
        yield from ()

    @model_validator(mode="after")
    def _check_combinations(self, info: ValidationInfo) -> Self:
        problems = [*self.conflicts(), *self.foreign_rows(fields.validation_context(info).rows)]
        if problems:
            raise conflict(problems)
        return self


class ProbedTable(Table):
    """A table whose guests take commands over a channel, with probes at ``points`` that run ``handlers``."""

    reference: Annotated[str, one_of(reference_tables)] | None = None
    channel: Annotated[ChannelKind, one_of(lambda: get_args(ChannelKind))] = "framed"
    """How commands reach the guest: the lab's own agent, the image's sshd, or a login on its console.

    ``ssh`` and ``serial`` need an ``image``.
    """
    points: Points | None = None
    """Where the probes are placed; by default at the function that the benchmark's calls enter.

    ``SYMBOL`` and ``SYMBOL+BYTES`` are in the kernel. ``SYMBOL+*`` stands for each instruction of the function,
    ``executed`` for every function that the calls enter: a guest finds these points before the run is planned.

    ``program:SYMBOL``, ``program:SYMBOL+BYTES`` and ``program:PROVIDER:NAME``, a static point, are in the workload;
    with a library's name, as in ``libc.so.6:malloc``, in that library.

    Tables of markers and of scaling have their own points.
    """
    handlers: Entries[Annotated[Handler, one_of(lambda: get_args(Handler))]] = ("noop",)
    """What a hit does: nothing, increment a counter, or record an event.

    ``stack`` records the stack as well. An event of tracefs fetches one, two or four values (``fetch-1``, ``fetch-2``,
    ``fetch-4``), or the name of the process (``fetch-string``).

    Tables of markers and of scaling have their own handlers.
    """
    time_limit: Annotated[int, whole(1, 86_400, "seconds")] = 120
    """Seconds of the host, without those spent waiting for a processor, for one cell; of scaling, without progress."""

    @property
    def guest_parameters(self) -> dict[str, str | int]:
        """A cell's parameters that tell its guests apart: the image, and a channel other than the default."""
        parameters: dict[str, str | int] = {} if self.image is None else {IMAGE: probe_name(Path(self.image))}
        return parameters if self.channel == "framed" else {**parameters, CHANNEL: self.channel}

    def cell(self, place: MatrixRow, parts: Sequence[str], **overrides: Any) -> Cell[Any]:
        overrides = {"channel": self.channel, "time_limit": self.time_limit, **overrides}
        return super().cell(place, parts, **overrides)

    def conflicts(self) -> Iterator[Problem]:
        yield from super().conflicts()
        for kernel in self.all_kernels:
            sentence = unsupported_reason(kernel_spec(kernel), self.image, self.channel)
            if sentence is not None:
                yield Problem(("channel" if self.image is None else "image",), sentence)
        for probe, kernel in self.kernel_for.items():
            if probe == BASELINE or probe not in self.probes:
                what = "a baseline is measured on every kernel" if probe == BASELINE else "it is not among the probes"
                yield Problem(("kernel_for", probe), what)
            for machine in self.machines:
                yield from kernel_conflicts(kernel, machine, ("kernel_for", probe), ("machines",))


class RowsTable(ProbedTable):
    """A table of a benchmark with rows of its own in place of probes, and fixed points, handlers and clock."""

    def row_prefix(self) -> str:
        return f"{self.benchmark.name}."

    def conflicts(self) -> Iterator[Problem]:
        name, prefix = self.benchmark.name, self.row_prefix()
        for index, row in enumerate(self.probes):
            if row != BASELINE and not row.startswith(prefix):
                sentence = f"found '{row}'; with benchmark '{name}': its rows are named {prefix}ROW"
                yield Problem(("probes", index), sentence, conflicting=("benchmark", "name"))
        if self.clock != "instructions":
            yield Problem(("clock",), f"found 'wall'; benchmark '{name}' is counted in instructions")
        if self.points is not None:
            yield Problem(("points",), f"benchmark '{name}' has its own probe points; leave it out")
        if self.handlers != ("noop",):
            yield Problem(("handlers",), f"benchmark '{name}' has its own handlers; leave it out")
        yield from super().conflicts()


def benchmark_keys(table: type[Table]) -> Mapping[str, Any]:
    """The fields of a table's ``benchmark`` by key, as pydantic describes them."""
    model = table.model_fields["benchmark"].annotation
    fields = getattr(model, "model_fields", None)
    assert isinstance(fields, dict), f"{table.__name__}.benchmark is no model"
    return fields
