# SPDX-License-Identifier: GPL-2.0-only
"""How a cell's outcome becomes a record of the result contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import EvidenceError
from orchestrator.experiment.cell import Cell
from orchestrator.results.contract import UNITS, CellRecord, Status


def without_number(cell: Cell[Any], status: Status, reason: str) -> CellRecord:
    """The outcome of a cell that has no number, with the reason."""
    return CellRecord(**identity(cell), parameters=dict(cell.parameters), status=status, reason=reason)


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


@contextmanager
def valid_result() -> Iterator[None]:
    """Make a record of what a guest reported; EvidenceError where the result contract refuses it."""
    try:
        yield
    except ValidationError as error:
        raise EvidenceError("what the guest reported makes no valid result", detail=str(error).splitlines()) from None


def changed(record: CellRecord, **fields: object) -> CellRecord:
    """The record with some fields replaced, checked anew. Raises EvidenceError where the contract refuses it."""
    with valid_result():
        return CellRecord.model_validate({**dict(record), **fields})
