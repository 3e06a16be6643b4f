# SPDX-License-Identifier: GPL-2.0-only
"""The profiles of stored cells that a user names, and the pairs of them that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.comparison.comparison import notes
from orchestrator.errors import LabError, UsageError
from orchestrator.library.stored import SHOWN_PAIRS, Find, cells_of_run, find_named, shown_ids
from orchestrator.paths import lab_dir
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.profile.stored.profile_difference import ProfileDifference, difference
from orchestrator.profile.stored.profile_files import has_plain_profile, load_pair, load_profile
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run, find_run


@dataclass(frozen=True)
class RunCell:
    """A cell of a run."""

    run: Run
    cell: CellRecord

    def profile(self) -> CellProfile:
        """Load the profile. Raises UsageError if there is none, LabError if the cell failed or the file has changed."""
        self.check_number()
        return load_profile(self.run.directory, self.cell)

    def check_number(self) -> None:
        """Raise LabError if the cell failed."""
        if self.cell.status != "ok":
            what = f"cell {self.cell.id} of run {self.run.record.run} is {self.cell.status}"
            raise LabError(what, detail=(self.cell.reason or "").splitlines()[:SHOWN_PAIRS])


def difference_of(before: RunCell, after: RunCell) -> ProfileDifference:
    """The difference of two profiles, with notes on how far they compare. Raises as ``RunCell.profile`` does."""
    before.check_number()
    after.check_number()
    pair = (before.run.directory, before.cell), (after.run.directory, after.cell)
    profile, other_profile = load_pair(*pair)
    remarks = list(notes((before.cell, profile), (after.cell, other_profile)))
    if has_plain_profile(*pair):
        remarks.append("the calls without the probe are those counted in turn with the probe's, in the same state")
    if before.cell.id == after.cell.id and before.run.record.run != after.run.record.run:
        remarks.insert(0, f"runs {before.run.record.run} -> {after.run.record.run}")
    return replace(difference(profile, other_profile), notes=remarks)


def stored_pairs(
    before: str, after: str, find: Find = find_run
) -> tuple[Sequence[tuple[RunCell, RunCell]], Sequence[str]]:
    """Two named cells, or the cells of equal ids with profiles in two named runs, and the ids of their other cells.

    Raises UsageError if nothing can be compared.
    """
    cells, other_cells = (find_named(name, find) for name in (before, after))
    if cells.cells is not None and other_cells.cells is not None:
        return [(_only(cells.run, cells.cells, before), _only(other_cells.run, other_cells.cells, after))], []
    if cells.cells is not None or other_cells.cells is not None:
        what, whole = (before, after) if cells.cells is not None else (after, before)
        raise UsageError(
            f"'{what}' names a cell, '{whole}' a run", hint=f"name a cell of both: {whole}:{what.rpartition(':')[2]}"
        )
    first, second = (
        {cell.id: cell for cell in named.run.record.cells if cell.profile} for named in (cells, other_cells)
    )
    pairs = [
        (RunCell(cells.run, first[cell]), RunCell(other_cells.run, second[cell])) for cell in first if cell in second
    ]
    if not pairs:
        raise _no_common_profile((before, after), (list(first), list(second)))
    every_cell = dict.fromkeys(cell.id for named in (cells, other_cells) for cell in named.run.record.cells)
    return pairs, [cell for cell in every_cell if not (cell in first and cell in second)]


def find_cell(name: str) -> RunCell:
    """The only cell of ``RUN:CELL``, or of a run. Raises UsageError."""
    named = find_named(name)
    return _only(named.run, named.run.record.cells if named.cells is None else named.cells, name)


def _only(run: Run, cells: Sequence[CellRecord], name: str) -> RunCell:
    if len(cells) > 1:
        hint = f"give more parts of the id: {run.record.run}:{cells[0].id}"
        raise UsageError(f"'{name}' names {len(cells)} cells", detail=shown_ids([cell.id for cell in cells]), hint=hint)
    return RunCell(run, cells[0])


def _no_common_profile(names: Sequence[str], profiled: Sequence[Sequence[str]]) -> UsageError:
    without = [name for name, cells in zip(names, profiled, strict=True) if not cells]
    if without:
        hint = f"measure them with profiles: {PROGRAM} run CONFIG --profile symbols"
        return UsageError(f"no cell of {' and of '.join(dict.fromkeys(without))} has a profile", hint=hint)
    lines = [
        f"{name}:{cell}" for name, cells in zip(names, profiled, strict=True) for cell in cells[: SHOWN_PAIRS // 2]
    ]
    what = f"no cell id has a profile in both {names[0]} and {names[1]}"
    return UsageError(what, detail=["cells with profiles:", *lines], hint="name a cell of each: RUN:CELL RUN:CELL")


def names_stored_cells(first: str, second: str) -> bool:
    """Whether ``second`` names a run, or RUN:CELL, and not a cell of the run ``first``."""
    if ":" in first and not Path(first).is_dir():  # RUN:CELL
        return True
    is_cell = ":" in second and not Path(second).is_dir()
    try:
        find_run(second.rpartition(":")[0] if is_cell else second, lab_dir())
    except LabError:
        return False
    return True


def profiled_cells(run: str, cell: str | None) -> Sequence[RunCell]:
    """The named cells that have a profile, or the first one if none has, whose profile then says why.

    ``cell`` is an id in the run, or parts of it; without it ``run`` may be ``RUN:CELL``. Raises UsageError.
    """
    chosen = find_named(run) if cell is None else cells_of_run(run, cell)
    cells = chosen.run.record.cells if chosen.cells is None else chosen.cells
    profiled = [record for record in cells if record.profile is not None] or cells[:1]
    return [RunCell(chosen.run, record) for record in profiled]
