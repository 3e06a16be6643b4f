# SPDX-License-Identifier: GPL-2.0-only
"""Which cells an experiment has, in which order, and which of them share a boot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from orchestrator.benchmarks.system.cells import macro_cells
from orchestrator.benchmarks.system.table import MacroMatrix
from orchestrator.catalog.benchmarks import benchmarks
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import Handler, probe_kind
from orchestrator.errors import ConfigError
from orchestrator.experiment.cell import Cell, machine_id, probes_on
from orchestrator.experiment.file.experiment import AnyExperiment, AnyMatrix
from orchestrator.experiment.table import Machine, Matrix
from orchestrator.guest.machine import ChannelKind
from orchestrator.results.contract import Clock

MAX_CELLS = 10_000


@dataclass(frozen=True)
class Boot:
    """A guest to boot once, and the cells measured in it: of each table and handler the baseline first."""

    cpu: str
    smp: int
    memory_mib: int
    kernel: str
    clock: Clock
    image: str | None
    channel: ChannelKind
    cells: tuple[Cell, ...]


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
        cells = macro_cells(name, matrix) if isinstance(matrix, MacroMatrix) else _cells(name, matrix)
        for cell in cells:
            machine = (cell.cpu, cell.smp, cell.memory_mib, cell.kernel, cell.clock, cell.image, cell.channel)
            # Work of one kind on so many probes is a boot's only one: what one leaves behind would change the next.
            alone: tuple[object, ...] = (cell.table, cell.benchmark, cell.size) if cell.size is not None else ()
            if cell.macro is not None:
                alone = (cell.id,)
            boots.setdefault((*machine, *alone), []).append(cell)
    planned = Plan(experiment.name, tuple(_boot(cells) for cells in boots.values()))
    ids = {cell.id for cell in planned.cells}
    if len(ids) != len(planned.cells):
        raise ConfigError(
            f"experiment '{experiment.name}' names one kernel in two ways, or two modules of one name",
            hint="name each build tree once, by its folder or by its image, and give each module of yours its own name",
        )
    return planned


def _count(matrix: AnyMatrix) -> int:
    if isinstance(matrix, MacroMatrix):
        # A kernel for single probes is measured by itself as well.
        probed = len(matrix.kernels) * len(matrix.probes) + 2 * len(matrix.kernel_for)
        return len(matrix.machines) * (probed + 1 + matrix.macro.again)
    places = len(matrix.points or (None,)) * len(matrix.benchmark.sizes or (None,))
    return len(matrix.machines) * len(matrix.handlers) * places * sum(map(len, probes_on(matrix).values()))


def _cells(table: str | None, matrix: Matrix) -> Iterator[Cell]:
    for machine, (kernel, probes) in product(matrix.machines, probes_on(matrix).items()):
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
    parts = [machine_id(machine), kernel_spec(kernel).name, probe_kind(probe).name, handler]
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
