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
    found = set(ids_named([cell.id for cell in run.cells], name, f"run {run.run}"))
    return [cell for cell in run.cells if cell.id in found]


def ids_named(ids: Sequence[str], name: str, where: str) -> Sequence[str]:
    """The same of the ids of cells; ``where`` says what has them. Raises UsageError where there is none."""
    if name in ids:
        return [name]
    parts = set(name.split("/"))
    found = [one for one in ids if parts <= set(one.split("/"))]
    if not found:
        known = list(dict.fromkeys(part for one in ids for part in one.split("/")))
        guess = nearest(name, known)
        raise UsageError(
            f"{where} has no cell '{name}'",
            detail=["cells:", *ids[:_SHOWN]],
            hint=f"did you mean '{guess}'?" if guess else "CELL is a cell's id, or parts of it such as kprobe",
        )
    return found
