# SPDX-License-Identifier: GPL-2.0-only
"""Cells that share a machine, a benchmark and a clock: the content of one table, or of a part of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.reference import ReferenceTable, reference_tables
from orchestrator.results.contract import CellRecord


@dataclass(frozen=True)
class Panel:
    """Cells that are compared with each other, on ``kernel`` except for probes that needed another one."""

    cells: Sequence[CellRecord]
    kernel: str
    handler: str | None = None
    """The handler, where it tells the panel from others of its table."""

    @property
    def first(self) -> CellRecord:
        """The cell to read the shared fields from."""
        return self.cells[0]

    @cached_property
    def references(self) -> Sequence[str]:
        """The published tables the cells are compared with, by id: one as a rule."""
        return list(dict.fromkeys(cell.reference.table for cell in self.cells if cell.reference))

    @property
    def reference(self) -> ReferenceTable | None:
        """The published table, where there is exactly one and this version knows it."""
        return reference_tables().get(self.references[0]) if len(self.references) == 1 else None

    @property
    def name(self) -> str:
        """The panel's short name: its table in the experiment, else the published table, else the CPU."""
        if self.first.table is not None:
            return self.first.table
        return self.reference.name if self.reference else self.first.cpu

    def place(self, name: str | None) -> str:
        """What a sentence calls the panel: ``name``, and the handler where that is needed; empty without both."""
        return ", ".join(part for part in (name, self.handler and f"handler {self.handler}") if part)

    @property
    def emulated(self) -> bool:
        """Whether the samples are times of QEMU's emulator, which are not a processor's."""
        return self.first.clock == "wall" and any(cell.parameters.get("accelerator") == "tcg" for cell in self.cells)

    def elsewhere(self, cell: CellRecord) -> bool:
        """Whether the cell was measured on another kernel than most."""
        return cell.kernel != self.kernel


Group = Sequence[Panel]
"""Panels of one kind that are printed as one table; never empty."""


def by_kernel(cells: Sequence[CellRecord]) -> Iterator[Panel]:
    """Yield a panel for each kernel; cells of a kernel that only adds probes stand in the main kernel's panel."""
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


def parameters(cell: CellRecord, names: Iterable[str]) -> tuple[object, ...]:
    """Return the cell's parameters of these names, None for each that it lacks."""
    return tuple(cell.parameters.get(name) for name in names)


def file_name(group: Group) -> str:
    """Return the name of the group's chart file, without a suffix; two groups may have the same."""
    first = group[0]
    if len(group) > 1 and first.reference is not None:
        return first.reference.document_id
    if first.first.table is not None:
        return first.first.table
    return f"{first.name}-{first.kernel}-{first.first.handler}"


def _probed(cells: Iterable[CellRecord]) -> set[str]:
    return {cell.probe for cell in cells} - {BASELINE}
