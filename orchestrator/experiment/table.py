# SPDX-License-Identifier: GPL-2.0-only
"""One table of an experiment: the keys common to the tables of every kind of benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from orchestrator.artifacts.guest_disks import GuestDisks, unsupported_reason
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE, Handler
from orchestrator.catalog.profile_parts import ProfilePart
from orchestrator.catalog.reference import reference_tables
from orchestrator.experiment.file import fields
from orchestrator.experiment.file.fields import Entries, Strict, one_of, whole
from orchestrator.experiment.file.problems import Problem, conflict, mismatch
from orchestrator.experiment.machine import Machine, kernel_conflicts, machine_conflicts
from orchestrator.guest.machine import ChannelKind
from orchestrator.program import PROGRAM
from orchestrator.results.contract import Clock

DEFAULT_REPEATS: dict[Clock, int] = {"instructions": 4, "wall": 12}
"""Default numbers of samples: exact ones are equal, scattered ones need an interval.

The 95 % interval of the median of twelve leaves out two on either side: one disturbance of the host between two
samples spoils at most both.
"""
FEWEST_WALL_REPEATS = 6
"""With fewer samples no interval covers the median with 95 %."""

Kernel = Annotated[str, BeforeValidator(fields.kernel)]
Row = Annotated[str, BeforeValidator(fields.probe)]
Points = Annotated[tuple[str, ...] | Literal["executed"], BeforeValidator(fields.points)]
"""Places by their names, or every function that the calls enter."""


def mapping_of_kernels(value: object) -> object:
    """A mapping of probe to kernel."""
    if not isinstance(value, dict):
        raise mismatch(value, "expected a mapping of probe to kernel, such as {kretprobe: lab-i386-smp-preempt}")
    return value


def _no_modelled_clock(value: object) -> object:
    """Times are modelled when they are reported: a table says what is measured."""
    if value == "modelled":
        what = "a report computes modelled time; set clock: instructions and profile: [symbols]"
        raise mismatch(value, f"{what}, then {PROGRAM} report --clock modelled")
    return value


class BenchmarkChoice(Strict):
    """What each cell of a table runs. The ``name`` decides the table's kind of benchmark."""

    name: Annotated[str, BeforeValidator(fields.benchmark)]
    """The benchmark, of ``./lab list benchmarks``. It decides the table's kind, and which other keys there are."""


class Table(Strict):
    """Machines, kernels and probes, of which every combination is a cell.

    ``PROFILE_PARTS`` is what its cells' profiles may have, in kinds that have the key ``profile``.
    """

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ()

    clock: Annotated[Clock, one_of(lambda: get_args(Clock)), BeforeValidator(_no_modelled_clock)] = "instructions"
    """What is measured: ``instructions`` exactly, on one CPU, or ``wall``, guest nanoseconds with their spread.

    Tables of markers and of scaling are always counted in instructions.
    """
    benchmark: BenchmarkChoice
    """What each cell runs."""
    reference: str | None = None
    """A published table to print beside the measured one."""
    image: Annotated[str, BeforeValidator(fields.image)] | None = None
    """The system that the guest's programs come from; without it the initramfs has what there is.

    Whole systems have by default the image that their work needs. Tables of scaling have none.
    """
    kernels: Entries[Kernel]
    """The kernels that are measured; ``{NAME: PATH}`` gives names to those of your own."""
    machines: Entries[Machine]
    """The machines that are measured."""
    probes: Entries[Row]
    """The probes, or the benchmark's own rows. ``none`` is the baseline: each overhead is the difference to it."""
    kernel_for: Annotated[dict[Row, Kernel], BeforeValidator(mapping_of_kernels)] = Field(default_factory=dict)
    """Another kernel for single probes, which gets a baseline too. The others are measured on ``kernels``."""

    @property
    def all_kernels(self) -> tuple[str, ...]:
        """The table's kernels and those of single probes, each once."""
        return tuple(dict.fromkeys([*self.kernels, *self.kernel_for.values()]))

    @property
    def unknown(self) -> str | None:
        """What of its cells is not known until it was found out in a guest; None where all are known."""
        return None

    def resolved(self) -> dict[str, Any]:
        """The table as plain values, every default written out."""
        return self.model_dump(mode="json")

    def conflicts(self) -> Iterator[Problem]:
        """Conflicts between values that are each valid alone."""
        yield from machine_conflicts(self.machines, self.kernels, self.clock)

    def foreign_rows(self, rows: Mapping[str, str]) -> Iterator[Problem]:
        """What is wrong with rows of other benchmarks among the probes; ``rows`` are all benchmarks by their rows."""
        del rows
        yield from ()

    @model_validator(mode="after")
    def _check_combinations(self, info: ValidationInfo) -> Self:
        problems = [*self.conflicts(), *self.foreign_rows(fields.surroundings(info).rows)]
        if problems:
            raise conflict(problems)
        return self


class ProbedTable(Table):
    """A table whose guests are used over a channel, with probes at ``points`` that have ``handlers``."""

    reference: Annotated[str, one_of(reference_tables)] | None = None
    channel: Annotated[ChannelKind, one_of(lambda: get_args(ChannelKind))] = "framed"
    """How commands reach the guest: the lab's own agent, the image's sshd, or a login on its console.

    ``ssh`` and ``serial`` need an ``image``.
    """
    points: Points | None = None
    """Where the probes are put. Without it, the function that the benchmark's calls enter.

    ``SYMBOL`` and ``SYMBOL+BYTES`` are in the kernel. ``SYMBOL+*`` stands for each instruction of the function,
    ``executed`` for every function that the calls enter: a guest finds those out before there are cells.

    ``program:SYMBOL``, ``program:SYMBOL+BYTES`` and ``program:PROVIDER:NAME``, a static point, are in the workload;
    with a library's name, as in ``libc.so.6:malloc``, in that library.

    Tables of markers and of scaling have their own points.
    """
    handlers: Entries[Annotated[Handler, one_of(lambda: get_args(Handler))]] = ("noop",)
    """What a hit does: nothing, increment a counter, or record an event.

    Tables of markers and of scaling have their own handlers.
    """
    time_limit: Annotated[int, whole(1, 86_400, "seconds")] = 120
    """Seconds of the host, in which a processor could be had, for one cell; in tables of scaling, without progress."""

    def conflicts(self) -> Iterator[Problem]:
        """Conflicts between values that are each valid alone."""
        yield from super().conflicts()
        for kernel in self.all_kernels:
            sentence = unsupported_reason(GuestDisks(self.image, self.channel), kernel_spec(kernel))
            if sentence is not None:
                yield Problem(("channel" if self.image is None else "image",), sentence)
        for probe, kernel in self.kernel_for.items():
            if probe == BASELINE or probe not in self.probes:
                what = "a baseline is measured on every kernel" if probe == BASELINE else "it is not among the probes"
                yield Problem(("kernel_for", probe), what)
            for machine in self.machines:
                yield from kernel_conflicts(kernel, machine, ("kernel_for", probe), ("machines",))


class RowsTable(ProbedTable):
    """A table of a benchmark that has its own rows in place of probes: points, handlers and clock are fixed."""

    def row_prefix(self) -> str:
        """The prefix of the names of the benchmark's rows."""
        return f"{self.benchmark.name}."

    def conflicts(self) -> Iterator[Problem]:
        """Conflicts between values that are each valid alone."""
        name, prefix = self.benchmark.name, self.row_prefix()
        for index, row in enumerate(self.probes):
            if row != BASELINE and not row.startswith(prefix):
                sentence = f"found '{row}'; with benchmark '{name}': its rows are named {prefix}ROW"
                yield Problem(("probes", index), sentence, other=("benchmark", "name"))
        if self.clock != "instructions":
            yield Problem(("clock",), f"found 'wall'; benchmark '{name}' is counted in instructions")
        if self.points is not None:
            yield Problem(("points",), f"benchmark '{name}' has its own probe points; leave it out")
        if self.handlers != ("noop",):
            yield Problem(("handlers",), f"benchmark '{name}' has its own handlers; leave it out")
        yield from super().conflicts()
