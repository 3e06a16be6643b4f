# SPDX-License-Identifier: GPL-2.0-only
"""Which cells an experiment has, in which order, and which of them share a boot."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from orchestrator.catalog.benchmarks import Entry
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import ConfigError
from orchestrator.experiment.schema import DEFAULT_MEMORY, Clock, Experiment, Machine

MAX_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """One combination to measure: everything that a number depends on, and the table to print beside it.

    ``memory_mib`` is in MiB, ``time_limit`` in seconds of the host's time, ``reference`` a published table's id.
    """

    id: str
    cpu: str
    smp: int
    memory_mib: int
    kernel: str
    probe: str
    handler: str
    benchmark: str
    calls: int
    repeats: int
    entry: Entry
    clock: Clock
    reference: str | None
    time_limit: int


@dataclass(frozen=True)
class Boot:
    """A guest to boot once, and the cells measured in it; of each handler's cells the baseline comes first."""

    cpu: str
    smp: int
    memory_mib: int
    kernel: str
    clock: Clock
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


def plan(experiment: Experiment) -> Plan:
    """Return the experiment's matrix as a plan.

    A baseline is added where the file has none: an overhead is measured against one of the same boot.
    Raises ConfigError for more than MAX_CELLS cells.
    """
    probes = (BASELINE, *(probe for probe in experiment.probes if probe != BASELINE))
    cells = len(experiment.machines) * len(experiment.kernels) * len(experiment.handlers) * len(probes)
    if cells > MAX_CELLS:
        raise ConfigError(
            f"experiment '{experiment.name}' has {cells} cells, baselines included; at most {MAX_CELLS} are allowed",
            hint="split it into several files",
        )
    boots = tuple(
        Boot(
            cpu=machine.cpu,
            smp=machine.smp,
            memory_mib=machine.memory_mib,
            kernel=kernel,
            clock=experiment.clock,
            cells=tuple(
                _cell(experiment, machine, kernel, probe, handler)
                for handler, probe in product(experiment.handlers, probes)
            ),
        )
        for machine, kernel in product(experiment.machines, experiment.kernels)
    )
    return Plan(experiment.name, boots)


def _cell(experiment: Experiment, machine: Machine, kernel: str, probe: str, handler: str) -> Cell:
    return Cell(
        id=f"{_machine_id(machine)}/{kernel}/{probe}/{handler}",
        cpu=machine.cpu,
        smp=machine.smp,
        memory_mib=machine.memory_mib,
        kernel=kernel,
        probe=probe,
        handler=handler,
        benchmark=experiment.benchmark.name,
        calls=experiment.benchmark.calls,
        repeats=experiment.benchmark.repeats,
        entry=experiment.benchmark.entry,
        clock=experiment.clock,
        reference=experiment.reference,
        time_limit=experiment.time_limit,
    )


def _machine_id(machine: Machine) -> str:
    # No CPU's name has a plus in it, so no two machines share an id.
    count = f"+x{machine.smp}" if machine.smp > 1 else ""
    memory = f"+{machine.memory}" if machine.memory != DEFAULT_MEMORY else ""
    return f"{machine.cpu}{count}{memory}"
