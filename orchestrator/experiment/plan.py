# SPDX-License-Identifier: GPL-2.0-only
"""Which cells an experiment has, in which order, and which of them share a boot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from orchestrator.benchmarks.calls import Argument
from orchestrator.catalog.benchmarks import Entry, benchmarks
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE, Handler, probe_kind
from orchestrator.errors import ConfigError
from orchestrator.experiment.matrix import DEFAULT_MEMORY, Machine, Matrix
from orchestrator.experiment.schema import AnyExperiment
from orchestrator.guest.machine import ChannelKind
from orchestrator.results.contract import Clock

MAX_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """One combination to measure: everything that a number depends on, and the table to print beside it.

    ``kernel`` and ``image`` are a catalogue's names or absolute paths, ``memory_mib`` in MiB, ``time_limit`` in seconds
    of the host's time, ``reference`` a published table's id, ``table`` the experiment's own (None where it has but
    one). ``probe`` is such a name or path too, ``point`` None where the benchmark's own function is probed.
    ``call``, ``arguments``, ``file`` and ``hits`` are the benchmark's, and so are ``size``, a number of probes, and
    ``seed``: None and unused where it is not one of many probes.
    """

    id: str
    table: str | None
    cpu: str
    smp: int
    memory_mib: int
    kernel: str
    point: str | None
    probe: str
    handler: Handler
    benchmark: str
    calls: int
    repeats: int
    entry: Entry
    call: str | None
    arguments: tuple[Argument, ...]
    file: str | None
    hits: int
    size: int | None
    seed: int
    clock: Clock
    image: str | None
    channel: ChannelKind
    reference: str | None
    time_limit: int


@dataclass(frozen=True)
class Boot:
    """A guest to boot once, and the cells measured in it: of each table and handler the baseline first.

    A ``sealed`` one does all of its work before it is talked to.
    """

    cpu: str
    smp: int
    memory_mib: int
    kernel: str
    clock: Clock
    image: str | None
    channel: ChannelKind
    cells: tuple[Cell, ...]

    @property
    def sealed(self) -> bool:
        """Whether the guest does its work by itself."""
        return self.cells[0].size is not None


@dataclass(frozen=True)
class Plan:
    """All of an experiment's cells, grouped by boot, in the file's order."""

    experiment_name: str
    boots: tuple[Boot, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of all boots, in order."""
        return tuple(cell for boot in self.boots for cell in boot.cells)


def plan(experiment: AnyExperiment) -> Plan:
    """Return the experiment's tables as a plan; tables that want the same machine and kernel share its boot.

    A baseline is added where the file has none: an overhead is measured against one of the same boot.
    Raises ConfigError for more than MAX_CELLS cells, and for two kernels of one name.
    """
    count = sum(_count(matrix) for _, matrix in experiment.matrices)
    if count > MAX_CELLS:
        raise ConfigError(
            f"experiment '{experiment.name}' has {count} cells, baselines included; at most {MAX_CELLS} are allowed",
            hint="split it into several files",
        )
    boots: dict[tuple[object, ...], list[Cell]] = {}
    for name, matrix in experiment.matrices:
        for cell in _cells(name, matrix):
            machine = (cell.cpu, cell.smp, cell.memory_mib, cell.kernel, cell.clock, cell.image, cell.channel)
            # Work of one kind on so many probes is a boot's only one: what one leaves behind would change the next.
            alone = (cell.table, cell.benchmark, cell.size) if cell.size is not None else ()
            boots.setdefault((*machine, *alone), []).append(cell)
    planned = Plan(experiment.name, tuple(_boot(cells) for cells in boots.values()))
    ids = {cell.id for cell in planned.cells}
    if len(ids) != len(planned.cells):
        raise ConfigError(
            f"experiment '{experiment.name}' names one kernel in two ways, or two modules of one name",
            hint="name each build tree once, by its folder or by its image, and give each module of yours its own name",
        )
    return planned


def _count(matrix: Matrix) -> int:
    places = len(matrix.points or (None,)) * len(matrix.benchmark.sizes or (None,))
    return len(matrix.machines) * len(matrix.handlers) * places * sum(map(len, _probes_on(matrix).values()))


def _probes_on(matrix: Matrix) -> dict[str, list[str]]:
    """Each kernel's probes, the baseline first: the table's kernels, then those that single probes have instead."""
    everywhere = [probe for probe in matrix.probes if probe not in (BASELINE, *matrix.kernel_for)]
    probes_on = {kernel: [BASELINE, *everywhere] for kernel in matrix.kernels}
    for probe in matrix.probes:
        if probe in matrix.kernel_for:
            probes_on.setdefault(matrix.kernel_for[probe], [BASELINE]).append(probe)
    return probes_on


def _cells(table: str | None, matrix: Matrix) -> Iterator[Cell]:
    for machine, (kernel, probes) in product(matrix.machines, _probes_on(matrix).items()):
        sizes, points = matrix.benchmark.sizes or (None,), matrix.points or (None,)
        for size, point, handler, probe in product(sizes, points, matrix.handlers, probes):
            yield _cell(table, matrix, machine, kernel, size, point, probe, handler)


def _cell(
    table: str | None,
    matrix: Matrix,
    machine: Machine,
    kernel: str,
    size: int | None,
    point: str | None,
    probe: str,
    handler: Handler,
) -> Cell:
    benchmark = matrix.benchmark
    call = benchmarks()[benchmark.name].call or benchmark.call
    parts = [_machine_id(machine), kernel_spec(kernel).name, probe_kind(probe).name, handler]
    if point is not None:
        parts.append(point)
    if size is not None:
        parts.append(str(size))
    return Cell(
        id="/".join([table, *parts] if table is not None else parts),
        table=table,
        cpu=machine.cpu,
        smp=machine.smp,
        memory_mib=machine.memory_mib,
        kernel=kernel,
        point=point,
        probe=probe,
        handler=handler,
        benchmark=benchmark.name,
        calls=benchmark.calls,
        repeats=matrix.repeats,
        entry=benchmark.entry,
        call=call,
        arguments=benchmark.arguments,
        file=benchmark.file,
        hits=benchmark.hits,
        size=size,
        seed=benchmark.seed,
        clock=matrix.clock,
        image=matrix.image,
        channel=matrix.channel,
        reference=matrix.reference,
        time_limit=matrix.time_limit,
    )


def _boot(cells: list[Cell]) -> Boot:
    first = cells[0]
    machine = (first.cpu, first.smp, first.memory_mib, first.kernel, first.clock)
    return Boot(*machine, first.image, first.channel, tuple(cells))


def _machine_id(machine: Machine) -> str:
    # No CPU's name has a plus in it, so no two machines share an id.
    count = f"+x{machine.smp}" if machine.smp > 1 else ""
    memory = f"+{machine.memory}" if machine.memory != DEFAULT_MEMORY else ""
    return f"{machine.cpu}{count}{memory}"
