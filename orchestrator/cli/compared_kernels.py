# SPDX-License-Identifier: GPL-2.0-only
"""The cells that ``diff`` and ``compare`` with ``--config`` compare: an experiment's, on two kernels in one run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.kernels import kernel
from orchestrator.cli.compared_cells import Side
from orchestrator.cli.measured import Measuring
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file.loading import load_experiment
from orchestrator.experiment.on_kernels import kernel_name, on_kernels
from orchestrator.experiment.plan import plan
from orchestrator.experiment.profiled import only_profiled, with_profile, with_symbols
from orchestrator.experiment.selection import select
from orchestrator.guest.emulator import qemu_cpu_names
from orchestrator.results.comparison import pairs_by_kernel
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

    @property
    def names(self) -> tuple[str, str]:
        """The kernels' names, as cells have them."""
        before, after = (kernel(kernel_name(name)).name for name in self.kernels)
        return before, after

    def measured(self, parts: Sequence[str], measuring: Measuring) -> Measured:
        """Measure each cell that can have a profile on both kernels, with these parts of it."""
        run = self._run(only_profiled(with_profile(self._experiment(), parts)), measuring)
        pairs = [(one.before, one.after) for one in pairs_by_kernel(run.record.cells, *self.names)]
        both = [(one, other) for one, other in pairs if one is not None and other is not None]
        return Measured(
            [(Side(run, one), Side(run, other)) for one, other in both if one.status == other.status == "ok"],
            [cell for cell in run.record.cells if cell.status != "ok"],
        )

    def run(self, measuring: Measuring) -> Run:
        """Measure each cell on both kernels, with its instructions by symbol wherever they can be proved."""
        return self._run(with_symbols(self._experiment()), measuring)

    def _experiment(self) -> Experiment:
        return load_experiment(self.config, kinds(), self.overrides, qemu_cpu_names)

    def _run(self, experiment: Experiment, measuring: Measuring) -> Run:
        wanted = measuring.found(on_kernels(experiment, self.kernels))
        planned = select(plan(wanted), self.only)
        entry, record = measuring.done(lambda runner: runner.run(wanted, planned, None))
        print(f"run {entry.id}: {entry.directory}", file=sys.stderr)
        return Run(record, entry.directory)
