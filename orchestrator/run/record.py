# SPDX-License-Identifier: GPL-2.0-only
"""How a cell's outcome becomes a record of the result contract."""

from __future__ import annotations

from typing import Any

from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.experiment.cell import Cell
from orchestrator.results.contract import UNITS, CellRecord, Status
from orchestrator.results.validity import valid_result


def without_number(cell: Cell[Any], status: Status, reason: str, release: str | None = None) -> CellRecord:
    """The outcome of a cell that has no number, with the reason, and its kernel's release where that is known."""
    known = {} if release is None else {"kernel_release": release}
    return CellRecord(**identity(cell), parameters={**cell.parameters, **known}, status=status, reason=reason)


def identity(cell: Cell[Any]) -> dict[str, Any]:
    """The fields that identify a cell, without its parameters."""
    return {
        "id": cell.id,
        "table": cell.table,
        "cpu": cell.cpu,
        "smp": cell.smp,
        "kernel": kernel_spec(cell.kernel).name,
        "probe": cell.row,
        "handler": cell.handler,
        "benchmark": cell.benchmark,
        "metric": cell.metric,
        "clock": cell.clock,
        "unit": UNITS[cell.clock],
    }


def changed(record: CellRecord, **fields: object) -> CellRecord:
    """The record with some fields replaced, checked anew. Raises EvidenceError where the contract refuses it."""
    with valid_result():
        return CellRecord.model_validate({**dict(record), **fields})
