# SPDX-License-Identifier: GPL-2.0-only
"""What ``RUN`` and ``RUN:CELL`` name on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.paths import lab_dir
from orchestrator.results.chosen_cell import cells_named
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run, UnknownRun, find_run


@dataclass(frozen=True)
class NamedCells:
    """A run that was named, and the cells of it; None where it was named alone."""

    run: Run
    cells: Sequence[CellRecord] | None


def named(name: str) -> NamedCells:
    """What ``RUN`` or ``RUN:CELL`` names; a directory with a colon in its name is a run. Raises UsageError."""
    run, colon, cell = name.rpartition(":")
    if not colon or Path(name).is_dir():
        try:
            return NamedCells(find_run(name, lab_dir()), None)
        except UnknownRun as error:
            if error.guess is not None:
                raise  # a misspelt run, not a cell
            hint = f"{error.hint or ''} A cell is named RUN:CELL: latest:{name}".strip()
            raise UsageError(error.what, where=error.where, detail=error.detail, hint=hint) from None
    if not run:
        raise UsageError(f"'{name}' names no run", hint="a cell is named RUN:CELL, such as latest:kprobe")
    return cells_of_run(run, cell)


def cells_of_run(run: str, cell: str) -> NamedCells:
    """The cells of a run that ``cell``, an id or parts of it, names. Raises UsageError."""
    found = find_run(run, lab_dir())
    return NamedCells(found, cells_named(found.record, cell))
