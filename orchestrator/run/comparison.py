# SPDX-License-Identifier: GPL-2.0-only
"""A record beside those it is compared with: its overhead, or the proof that it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.errors import EvidenceError
from orchestrator.experiment.cell import Cell
from orchestrator.results.contract import CellRecord
from orchestrator.run.kind import BenchmarkKind
from orchestrator.run.record import without_number


def compared(
    kind: BenchmarkKind, cell: Cell[Any], record: CellRecord, outcomes: Mapping[str, CellRecord]
) -> CellRecord:
    """The record as its kind completes it; a failed one where the comparison proves it wrong.

    ``outcomes`` are records by id, among them those of ``cell.compared_with``; one without a number is passed over.
    """
    if record.status != "ok":
        return record
    found = [outcomes[other] for other in cell.compared_with if other in outcomes]
    try:
        return kind.compare(cell, record, [other for other in found if other.status == "ok"])
    except EvidenceError as error:
        return without_number(cell, "failed", str(error))
