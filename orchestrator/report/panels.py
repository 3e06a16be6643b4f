# SPDX-License-Identifier: GPL-2.0-only
"""Which cells of a run stand together in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.benchmarks.calls.capabilities import ability_names
from orchestrator.benchmarks.markers.rows import marker_row
from orchestrator.benchmarks.system.workloads import macro_benchmarks
from orchestrator.catalog.probes import BASELINE, probe_kind, probes
from orchestrator.catalog.reference import ReferenceTable, reference_tables
from orchestrator.results.contract import CellRecord, RunRecord

_APART = ("call", "workload", "at", "probes", "image", "channel", "scope", "packets", "command", "memory_mib")
"""Parameters that tell one panel from another."""


@dataclass(frozen=True)
class Panel:
    """Cells of one machine, benchmark, point, handler and clock, on ``kernel`` but for probes that needed another."""

    cells: Sequence[CellRecord]
    kernel: str

    @property
    def first(self) -> CellRecord:
        """The cell that says what all of them share."""
        return self.cells[0]

    @property
    def references(self) -> Sequence[str]:
        """The published tables the cells are compared with, by id: one as a rule."""
        return list(dict.fromkeys(cell.reference.table for cell in self.cells if cell.reference))

    @property
    def reference(self) -> ReferenceTable | None:
        """The published table, where there is exactly one and this version knows it."""
        return reference_tables().get(self.references[0]) if len(self.references) == 1 else None

    @property
    def name(self) -> str:
        """What the panel is called where there is little room: by its table, else by what is published of it."""
        if self.first.table is not None:
            return self.first.table
        return self.reference.name if self.reference else self.first.cpu

    @property
    def emulated(self) -> bool:
        """Whether a clock was read in QEMU's emulator, whose time is no processor's."""
        return self.first.clock == "wall" and any(cell.parameters.get("accelerator") == "tcg" for cell in self.cells)

    def elsewhere(self, cell: CellRecord) -> bool:
        """Whether the cell was measured on another kernel than most."""
        return cell.kernel != self.kernel


def panels(run: RunRecord) -> list[Panel]:
    """Return the run's cells in panels, in the run's order."""
    groups: dict[tuple[object, ...], list[CellRecord]] = {}
    for cell in run.cells:
        asked = tuple(cell.parameters.get(name) for name in _APART)
        # Whole systems are compared across kernels, with probes that record and without any.
        handler = None if _is_macro(cell) else cell.handler
        key = (cell.table, cell.cpu, cell.smp, cell.benchmark, cell.metric, handler, cell.clock, cell.unit, asked)
        groups.setdefault(key, []).append(cell)
    return [
        panel
        for cells in groups.values()
        for panel in ([Panel(cells, cells[0].kernel)] if _is_macro(cells[0]) else _by_kernel(cells))
    ]


def benchmark_title(cell: CellRecord) -> str:
    """Return what the cell runs, in a word: the user's own file or the system call where the experiment names it."""
    if cell.benchmark == "gtodbench":
        return cell.benchmark
    return str(cell.parameters.get("workload") or cell.parameters.get("call") or cell.benchmark)


def probe_title(cell: CellRecord) -> str:
    """Return what the documents call the cell's probe."""
    if cell.probe in ability_names() or (cell.probe != BASELINE and marker_row(cell.probe)):
        return probe_kind(cell.probe).title
    kind = probes().get(cell.probe)
    return kind.title if kind else cell.probe


def heading(cell: CellRecord) -> str:
    """Return the heading of the cell's column: the unprobed kernel is headed by its release."""
    if cell.probe == BASELINE:
        return f"linux-{cell.parameters.get('kernel_release', cell.kernel)}"
    return probe_title(cell)


def _is_macro(cell: CellRecord) -> bool:
    return cell.benchmark in macro_benchmarks().benchmarks


def _by_kernel(cells: Sequence[CellRecord]) -> Iterator[Panel]:
    """A panel for each kernel; one that has only probes which the main kernel has not stands in for it."""
    kernels = Counter(cell.kernel for cell in cells)
    home = kernels.most_common(1)[0][0]
    at_home = _probed(cell for cell in cells if cell.kernel == home)
    guests = {
        kernel
        for kernel in kernels
        if at_home and not at_home & _probed(cell for cell in cells if cell.kernel == kernel)
    }
    yield from (
        Panel([cell for cell in cells if cell.kernel == kernel or (kernel == home and cell.kernel in guests)], kernel)
        for kernel in kernels
        if kernel not in guests
    )


def _probed(cells: Iterable[CellRecord]) -> set[str]:
    return {cell.probe for cell in cells} - {BASELINE}
