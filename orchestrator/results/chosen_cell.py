# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a run that a person names: by their ids, by parts of them (``kprobe``), or as ``--only`` does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from orchestrator.catalog.spelling import nearest
from orchestrator.errors import UsageError
from orchestrator.results.cell_filter import CellFilter, FilterError, names_of
from orchestrator.results.contract import CellRecord, RunRecord

_SHOWN = 20
_HINT = "CELL is a cell's id, parts of it such as kprobe, or a pattern such as 'bpf-*'"
_IS_FILTER = re.compile(r"[*?=\[,]")


def cells_named(run: RunRecord, name: str) -> Sequence[CellRecord]:
    """The cell with this id, the cells whose ids have all of its parts, or those that a filter selects.

    Raises UsageError where there is none.
    """
    ids = [cell.id for cell in run.cells]
    chosen = [] if _with_parts(ids, name) or not _IS_FILTER.search(name) else _selected(run, name)
    found = {cell.id for cell in chosen} or set(ids_named(ids, name, f"run {run.run}"))
    return [cell for cell in run.cells if cell.id in found]


def _selected(run: RunRecord, name: str) -> Sequence[CellRecord]:
    try:
        wanted = CellFilter.of(name)
    except FilterError as error:
        raise UsageError(str(error), where=f"cell {name!r}", hint=error.hint) from None
    return [cell for cell in run.cells if wanted.matches(names_of(cell))]


def ids_named(ids: Sequence[str], name: str, where: str) -> Sequence[str]:
    """The id of this name, or the ids that have all of its parts, patterns among them; ``where`` says what has them.

    Raises UsageError where there is none.
    """
    found = _with_parts(ids, name)
    if not found:
        known = list(dict.fromkeys(part for one in ids for part in one.split("/")))
        guess = nearest(name, known)
        raise UsageError(
            f"{where} has no cell '{name}'",
            detail=["cells:", *ids[:_SHOWN]],
            hint=f"did you mean '{guess}'?"
            if guess
            else "CELL is a cell's id, parts of it such as kprobe, or a pattern: 'bpf-*'",
        )
    return found


def _with_parts(ids: Sequence[str], name: str) -> Sequence[str]:
    if name in ids:
        return [name]
    wanted = name.split("/")
    parts = {one: one.split("/") for one in ids}
    return [one for one in ids if all(any(fnmatchcase(part, each) for part in parts[one]) for each in wanted)]
