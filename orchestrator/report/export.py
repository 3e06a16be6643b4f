# SPDX-License-Identifier: GPL-2.0-only
"""What the forms for other systems share."""

from __future__ import annotations

from datetime import UTC, datetime

from orchestrator.errors import UsageError
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord, RunRecord

_BEGINNING = "%Y%m%d-%H%M%S"
"""Of a run's id: when it began, UTC."""
_LENGTH = len("20261122-142920")


def check_exportable(run: RunRecord) -> None:
    """Raise UsageError for a run without an outcome: other systems take it for a good one, or refuse it."""
    if not run.cells:
        raise UsageError(
            f"no cell of run {run.run} has an outcome yet", hint=f"go on with it: {PROGRAM} run CONFIG --resume"
        )


def started(run: RunRecord) -> datetime | None:
    """When the run began, by its id: a directory from another machine says it nowhere else."""
    try:
        return datetime.strptime(run.run[:_LENGTH], _BEGINNING).replace(tzinfo=UTC)
    except ValueError:
        return None


def first_line(cell: CellRecord) -> str:
    """The first line of the reason why a cell has no number."""
    return (cell.reason or cell.status).splitlines()[0]
