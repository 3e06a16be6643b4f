# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a run that a person names by their ids, or by parts of them: ``kprobe``, ``pentium4/none``."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.catalog.spelling import nearest
from orchestrator.errors import UsageError
from orchestrator.results.contract import CellRecord, RunRecord

_SHOWN = 20


def cells_named(run: RunRecord, name: str) -> Sequence[CellRecord]:
    """The cell with this id, or the cells whose ids have all of its parts. Raises UsageError where there is none."""
    whole = [cell for cell in run.cells if cell.id == name]
    if whole:
        return whole
    parts = set(name.split("/"))
    found = [cell for cell in run.cells if parts <= set(cell.id.split("/"))]
    if not found:
        known = list(dict.fromkeys(part for cell in run.cells for part in cell.id.split("/")))
        guess = nearest(name, known)
        raise UsageError(
            f"run {run.run} has no cell '{name}'",
            detail=["cells:", *(cell.id for cell in run.cells[:_SHOWN])],
            hint=f"did you mean '{guess}'?" if guess else "CELL is a cell's id, or parts of it such as kprobe",
        )
    return found
