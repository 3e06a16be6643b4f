# SPDX-License-Identifier: GPL-2.0-only
"""System: the cost of a whole system's work with recording probes, with a module, or on another kernel."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.system.cells import system_cells
from orchestrator.benchmarks.system.compare import compared
from orchestrator.benchmarks.system.measurement import measure_work
from orchestrator.benchmarks.system.preparation import SystemSetup, prepare_cell
from orchestrator.benchmarks.system.table import SystemTable
from orchestrator.benchmarks.system.task import SystemCell
from orchestrator.benchmarks.system.workloads import system_workloads
from orchestrator.catalog.events import standard_events
from orchestrator.experiment.kind import BenchmarkEntry, Listing
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import Session
from orchestrator.run.kind import BenchmarkKind
from orchestrator.run.preparation import Prepared


class SystemKind(BenchmarkKind):
    """Whole systems, one cell a boot."""

    name = "system"
    table = SystemTable
    former_key = "macro"
    aliases = {"again": "aa_boots"}  # noqa: RUF012 - never changed

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        """The workloads by name."""
        return {name: BenchmarkEntry(one.title) for name, one in system_workloads().benchmarks.items()}

    def lists(self) -> Mapping[str, Listing]:
        """The scopes of kernel builds, and the events that probes record."""
        return {
            "scopes": Listing(("name", "what_is_built", "guest_seconds_a_warm_run"), _scopes),
            "events": Listing(("name", "event", "group", "marker", "functions"), _events),
        }

    def cells(self, name: str | None, table: SystemTable) -> Generator[SystemCell, None, None]:
        """For each machine the baseline, its A/A boots, and the cells compared with them."""
        yield from system_cells(name, table)

    def boot_key(self, cell: SystemCell) -> Hashable:
        """Each cell has a boot of its own."""
        return cell.id

    def describe(self, cell: SystemCell) -> str:
        """The amount of work and the runs."""
        scope = f"scope {cell.task.scope}, " if cell.task.scope else ""
        packets = f"{cell.task.packets} packets, " if cell.task.packets else ""
        return f"{scope}{packets}a cold run and {cell.repeats} warm ones"

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[SystemCell]
    ) -> Mapping[str, Prepared[SystemSetup]]:
        """The image, the source to build, and the module beside the work."""
        return {cell.id: prepare_cell(context, kernel, cell) for cell in cells}

    def measure(self, session: Session, cells: Sequence[SystemCell]) -> Generator[CellRecord, None, None]:
        """Do the work of each cell in its own guest."""
        for cell in cells:
            yield measure_work(session, cell)

    def compare(self, cell: SystemCell, record: CellRecord, others: Sequence[CellRecord]) -> CellRecord:
        """The record with its overhead over the baseline, and no verdict below the A/A boots' resolution."""
        return compared(cell, record, others)


def _scopes() -> Sequence[Sequence[object]]:
    return [(name, scope.title, scope.seconds) for name, scope in system_workloads().scopes.items()]


def _events() -> Sequence[Sequence[object]]:
    return [
        (e.name, e.title, e.group, e.marker, e.functions or ["system calls' own"]) for e in standard_events().values()
    ]


KIND = SystemKind()
