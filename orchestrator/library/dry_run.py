# SPDX-License-Identifier: GPL-2.0-only
"""What a run would do, as far as the cache knows it: boots with QEMU's command lines, and what each cell is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import HostError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.plan import Boot
from orchestrator.guest.machine import Machine
from orchestrator.guest.qemu_command import Wiring, qemu_command
from orchestrator.library.measurer import Measurer
from orchestrator.library.planned_experiments import unchecked_kernels
from orchestrator.paths import cache_dir
from orchestrator.run.boot_preparation import checked_cells
from orchestrator.run.machines import machine_of, timing_of
from orchestrator.run.runner import resolve_from_cache


@dataclass(frozen=True)
class PlannedCell:
    """A cell with what it measures, and the reason why the kernel cannot have it, if it is known."""

    cell: Cell[Any]
    what: str
    refusal: str | None


@dataclass(frozen=True)
class PlannedBoot:
    """A boot with QEMU's command line, which names what is not built or not chosen yet in parentheses."""

    boot: Boot
    command: Sequence[str]
    cells: Sequence[PlannedCell]


@dataclass(frozen=True)
class DryRun:
    """What a run of an experiment would do."""

    boots: Sequence[PlannedBoot]
    unknown: Sequence[str]
    """A sentence for each table whose points only a guest knows."""
    unchecked: Sequence[str]
    """The kernels whose points could not be checked: they are not in the cache, or their code is unreadable."""

    def lines(self) -> Iterator[str]:
        """Each boot with its command line and its cells, and what is not known yet: the text of ``run --dry-run``."""
        for planned in self.boots:
            boot = planned.boot
            yield f"# boot: {boot.guest.cpu}, {boot.spec.name}, clock {boot.clock}"
            yield shlex.join(planned.command)
            for planned_cell in planned.cells:
                cell, refusal = planned_cell.cell, planned_cell.refusal
                unsupported = "" if refusal is None else f"; unsupported: {refusal}"
                yield f"  {cell.id}  {cell.benchmark}: {planned_cell.what}{unsupported}"
        for unknown in self.unknown:
            yield f"# {unknown}"
        for name in self.unchecked:
            yield f"# points not checked: kernel {name} is not in the cache, or its code is unreadable"


def dry_runs(
    measurer: Measurer, experiments: Sequence[Experiment], only: Sequence[str] = (), *, resumed: bool = False
) -> Iterator[DryRun]:
    """What runs of experiments would do, with what the cache has; all are checked before the first one is returned.

    Nothing is fetched, built or started. Of runs to be ``resumed`` the points are not checked again. Raises as
    ``Measurer.planned`` does, and ConfigError for points and modules that none of the kernels has.
    """
    cached = BuildContext(Cache(cache_dir()), offline=True)
    resolved = [resolve_from_cache(cached, experiment, kinds()) for experiment in experiments]
    plans = [measurer.planned(experiment, only) for experiment in resolved]
    checked = list(zip(resolved, plans, strict=True))
    unchecked = [[] if resumed else unchecked_kernels(cached, *experiment_and_plan) for experiment_and_plan in checked]
    for (experiment, planned), kernels in zip(checked, unchecked, strict=True):
        unknown = [named.table.unknown for named in experiment.tables if named.table.unknown is not None]
        yield DryRun([_planned_boot(cached, boot) for boot in planned.boots], unknown, kernels)


def _planned_boot(cached: BuildContext, boot: Boot) -> PlannedBoot:
    kind, spec = kinds().named(boot.kind), boot.spec
    refused: Mapping[str, str] = {}
    try:
        kernel = ready_kernel(cached, spec)
        possible, refused = checked_cells(kind, kernel, boot)
        machine = machine_of(cached, kernel, possible)
    except HostError:
        machine = Machine(
            boot.guest.cpu_model,
            Path(f"(kernel of {spec.name}, not built)"),
            Path(f"(initramfs of {spec.name}, not built)"),
            boot.guest.smp,
            boot.guest.memory_mib,
            timing_of(boot.guest),
            keeps_time=boot.clock == "wall",
            channel=boot.guest.channel,
        )
    overlay = None if machine.root is None else Path("(the guest's own overlay)")
    wiring = Wiring("(a socket)", "(a socket)", "(the run's directory)/console", overlay=overlay)
    cells = [PlannedCell(cell, kind.describe(cell), refused.get(cell.id)) for cell in boot.cells]
    return PlannedBoot(boot, qemu_command(machine, wiring), cells)
