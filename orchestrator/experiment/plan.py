# SPDX-License-Identifier: GPL-2.0-only
"""The cells of an experiment in order, and the boots that they share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

from orchestrator.catalog.profile_parts import ProfilePart
from orchestrator.errors import ConfigError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.experiment import Experiment
from orchestrator.guest.machine import ChannelKind
from orchestrator.results.contract import Clock

MAX_CELLS = 10_000


@dataclass(frozen=True)
class Boot:
    """A guest to boot once, and the cells of one kind of benchmark measured in it, baselines before the others.

    ``kind`` is the kind's name; the rest is as in a cell.
    """

    kind: str
    cpu: str
    smp: int
    memory_mib: int
    kernel: str
    clock: Clock
    image: str | None
    channel: ChannelKind
    kernel_modules: tuple[str, ...]
    cells: tuple[Cell[Any], ...]

    @property
    def profile(self) -> frozenset[ProfilePart]:
        """What the profiles of its cells are to have."""
        return frozenset(part for cell in self.cells for part in cell.profile)


@dataclass(frozen=True)
class Plan:
    """All of an experiment's cells, grouped by boot, in the file's order."""

    experiment_name: str
    boots: tuple[Boot, ...]

    @property
    def cells(self) -> tuple[Cell[Any], ...]:
        """The cells of all boots, in order."""
        return tuple(cell for boot in self.boots for cell in boot.cells)


def plan(experiment: Experiment) -> Plan:
    """Return the experiment's tables as a plan; tables of one kind, on the same machine and kernel, share a boot.

    A baseline is added where the file has none: an overhead is measured against one of the same boot.
    Raises ConfigError for more than MAX_CELLS cells, and for two kernels of one name.
    """
    # Lazy, because a table of a few lines can have millions of cells.
    every_cell = ((one.kind, cell) for one in experiment.tables for cell in one.kind.cells(one.name, one.table))
    found = list(islice(every_cell, MAX_CELLS + 1))
    if len(found) > MAX_CELLS:
        raise ConfigError(
            f"experiment '{experiment.name}' has more than {MAX_CELLS} cells, baselines included",
            hint="split it into several files",
        )
    boots: dict[tuple[object, ...], tuple[str, list[Cell[Any]]]] = {}
    for kind, cell in found:
        key = (kind.name, *machine_key(cell), kind.boot_key(cell))
        boots.setdefault(key, (kind.name, []))[1].append(cell)
    planned = Plan(
        experiment.name,
        tuple(Boot(kind_name, *machine_key(cells[0]), tuple(cells)) for kind_name, cells in boots.values()),
    )
    twice = next((id_ for id_, number in Counter(cell.id for cell in planned.cells).items() if number > 1), None)
    if twice is not None:
        raise ConfigError(
            f"experiment '{experiment.name}' has two cells of one name: {twice}",
            hint="name each build tree once, by its folder or by its image, and give each file of yours its own name",
        )
    return planned


_Machine = tuple[str, int, int, str, Clock, str | None, ChannelKind, tuple[str, ...]]


def machine_key(cell: Cell[Any]) -> _Machine:
    """What a boot has in common with its cells, in the order of Boot's fields behind its kind."""
    machine = (cell.cpu, cell.smp, cell.memory_mib, cell.kernel)
    return *machine, cell.clock, cell.image, cell.channel, cell.kernel_modules
