# SPDX-License-Identifier: GPL-2.0-only
"""Which of a fleet's workers measured which cells of a run, in a sentence."""

from __future__ import annotations

from collections import Counter

from orchestrator.counted import counted
from orchestrator.results.contract import RunRecord

_NAMED = 8


def measured_by(run: RunRecord) -> str | None:
    """``Measured by a fleet: a-1 12 cells, a-2 12 cells.``; None of a run that its own machine measured."""
    cells = Counter(cell.worker for cell in run.cells if cell.worker is not None)
    if not cells:
        return None
    named = [f"{name} {counted(count, 'cell')}" for name, count in sorted(cells.items())]
    rest = [f"{len(named) - _NAMED} more workers"] if len(named) > _NAMED else []
    here = sum(cell.worker is None for cell in run.cells)
    own = [f"{counted(here, 'cell')} by no worker"] if here else []
    return f"Measured by a fleet: {', '.join([*named[:_NAMED], *rest, *own])}."
