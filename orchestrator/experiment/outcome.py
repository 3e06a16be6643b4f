# SPDX-License-Identifier: GPL-2.0-only
"""How a cell's outcome becomes a record of the result contract."""

from __future__ import annotations

from orchestrator.catalog.probes import probes
from orchestrator.catalog.reference import reference_table
from orchestrator.experiment.plan import Cell
from orchestrator.experiment.supplies import Supplies
from orchestrator.results.contract import UNITS, CellRecord, ReferenceValue, Status


def without_number(supplies: Supplies, cell: Cell, status: Status, reason: str) -> CellRecord:
    """The outcome of a cell that has no number, with the reason."""
    return CellRecord(**identity(supplies, cell), status=status, reason=reason)


def identity(supplies: Supplies, cell: Cell) -> dict[str, object]:
    """The fields that tell a cell from all others."""
    return {
        "id": cell.id,
        "table": cell.table,
        "cpu": cell.cpu,
        "smp": cell.smp,
        "kernel": supplies.kernel.spec.name,
        "probe": cell.probe,
        "handler": cell.handler,
        "benchmark": cell.benchmark,
        "metric": "cost per call",
        "clock": cell.clock,
        "unit": UNITS[cell.clock],
    }


def reference(cell: Cell) -> ReferenceValue | None:
    """What was published for the cell, if it was."""
    column = probes()[cell.probe].column
    if cell.reference is None or column is None:
        return None
    table = reference_table(cell.reference)
    if column not in table.columns:
        return None
    return ReferenceValue(table=table.id, value=table.average(column), overhead=table.overhead(column), unit=table.unit)
