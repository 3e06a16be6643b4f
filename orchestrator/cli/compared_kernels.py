# SPDX-License-Identifier: GPL-2.0-only
"""The cells that ``diff --config`` compares: an experiment's, measured on two kernels in one run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.kernels import kernel
from orchestrator.cli.compared_cells import Side
from orchestrator.cli.measured import Measuring
from orchestrator.experiment.file.loading import load_experiment
from orchestrator.experiment.on_kernels import kernel_name, on_kernels
from orchestrator.experiment.plan import plan
from orchestrator.experiment.profiled import only_profiled, with_profile
from orchestrator.experiment.selection import select
from orchestrator.guest.emulator import qemu_cpu_names
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run


@dataclass(frozen=True)
class Measured:
    """The pairs of cells that have a number on both kernels, and of the others those that have none."""

    pairs: Sequence[tuple[Side, Side]]
    missing: Sequence[CellRecord]


@dataclass(frozen=True)
class TwoKernels:
    """An experiment on two kernels: names of the catalogue, or paths of a user's.

    ``overrides`` replace its values, ``only`` selects its cells.
    """

    config: Path
    kernels: tuple[str, str]
    overrides: Sequence[str]
    only: Sequence[str]

    def measured(self, parts: Sequence[str], measuring: Measuring) -> Measured:
        """Measure each cell on both kernels, with these parts of a profile."""
        experiment = load_experiment(self.config, kinds(), self.overrides, qemu_cpu_names)
        profiled = only_profiled(with_profile(experiment, parts))
        wanted = on_kernels(profiled, self.kernels)
        planned = select(plan(wanted), self.only)
        entry, record = measuring.done(lambda runner: runner.run(wanted, planned, None))
        print(f"run {entry.id}: {entry.directory}", file=sys.stderr)
        run = Run(record, entry.directory)
        names = [kernel(kernel_name(name)).name for name in self.kernels]
        before, after = ({_but_kernel(cell): cell for cell in record.cells if cell.kernel == name} for name in names)
        pairs = [(before[key], after[key]) for key in before if key in after]
        return Measured(
            [(Side(run, one), Side(run, other)) for one, other in pairs if one.status == other.status == "ok"],
            [cell for cell in record.cells if cell.status != "ok"],
        )


def _but_kernel(cell: CellRecord) -> Sequence[str]:
    """The parts of a cell's id that it has on another kernel, too."""
    return tuple(part for part in cell.id.split("/") if part != cell.kernel)
