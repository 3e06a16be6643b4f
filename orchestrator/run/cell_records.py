# SPDX-License-Identifier: GPL-2.0-only
"""What every kind writes into a cell's record, and records without a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import EvidenceError
from orchestrator.experiment.cell import Cell
from orchestrator.guest.machine import machine_facts
from orchestrator.plain_text import shown
from orchestrator.results.contract import UNITS, CellRecord, Status, valid_result
from orchestrator.results.parameters import IMPLIED_OPTIONS, KERNEL_RELEASE, USUAL_PARAMETERS
from orchestrator.run.benchmark_kind import BenchmarkKind

_NAMED_OPTIONS = 4
"""A record's text has at most 200 characters; lockdep brings twenty options."""


def without_number(cell: Cell[Any], status: Status, reason: str, release: str | None = None) -> CellRecord:
    """The outcome of a cell without a number, with the reason, and its kernel's release if known."""
    known = {} if release is None else {KERNEL_RELEASE: release}
    return CellRecord(**identity(cell), parameters={**cell.parameters, **known}, status=status, reason=reason)


def identity(cell: Cell[Any]) -> dict[str, Any]:
    """The fields that identify a cell, without its parameters."""
    same = ("id", "table", "cpu", "smp", "probe", "handler", "benchmark", "metric", "clock")
    return {**{name: getattr(cell, name) for name in same}, "kernel": cell.spec.name, "unit": UNITS[cell.clock]}


def kernel_facts(kernel: Kernel) -> dict[str, str]:
    """What records say of their kernel."""
    facts: dict[str, str] = {KERNEL_RELEASE: kernel.release}
    if kernel.spec.parameters:
        facts[USUAL_PARAMETERS] = " ".join(machine_facts().kernel_parameters)
    if kernel.implied:
        implied = [f"{option}={value}" for option, value in kernel.implied.items()]
        facts[IMPLIED_OPTIONS] = ", ".join(shown(implied, _NAMED_OPTIONS, "{} more (build kernel lists them)"))
    return facts


def changed(record: CellRecord, **fields: object) -> CellRecord:
    """The record with some fields replaced, validated again. Raises EvidenceError if it violates the contract."""
    with valid_result():
        return CellRecord.model_validate({**dict(record), **fields})


def compared(
    kind: BenchmarkKind, cell: Cell[Any], record: CellRecord, outcomes: Mapping[str, CellRecord]
) -> CellRecord:
    """The record as its kind completes it; a failed one if the comparison proves it wrong.

    ``outcomes`` are records by id, including those of ``cell.compared_with``; records without a number are skipped.
    """
    if record.status != "ok":
        return record
    cells = [outcomes[cell_id] for cell_id in cell.compared_with if cell_id in outcomes]
    try:
        return kind.compare(cell, record, [other_cell for other_cell in cells if other_cell.status == "ok"])
    except EvidenceError as error:
        return without_number(cell, "failed", str(error))
