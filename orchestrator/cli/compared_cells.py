# SPDX-License-Identifier: GPL-2.0-only
"""The stored cells that ``diff A B`` compares, and what to say where A and B name none."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.cli.named_cells import named
from orchestrator.errors import LabError, UsageError
from orchestrator.program import PROGRAM
from orchestrator.results.comparable import notes
from orchestrator.results.contract import CellRecord
from orchestrator.results.profile import CellProfile, load_profile
from orchestrator.results.profile_difference import ProfileDifference, difference
from orchestrator.results.runs import Run

_SHOWN = 20


@dataclass(frozen=True)
class Side:
    """A cell of a run."""

    run: Run
    cell: CellRecord

    def profile(self) -> CellProfile:
        """Its profile. Raises UsageError where it has none, LabError where it has failed, or its file is another."""
        if self.cell.status != "ok":
            what = f"cell {self.cell.id} of run {self.run.record.run} is {self.cell.status}"
            raise LabError(what, detail=(self.cell.reason or "").splitlines()[:_SHOWN])
        return load_profile(self.run.directory, self.cell)


def difference_of(before: Side, after: Side) -> ProfileDifference:
    """What differs between two cells, with what is to be said of comparing them. Raises as ``Side.profile`` does."""
    one, other = before.profile(), after.profile()
    said = list(notes((before.cell, one), (after.cell, other)))
    if before.cell.id == after.cell.id and before.run.record.run != after.run.record.run:
        said.insert(0, f"runs {before.run.record.run} -> {after.run.record.run}")
    return replace(difference(one, other), notes=said)


def stored_pairs(before: str, after: str) -> Sequence[tuple[Side, Side]]:
    """Two cells that ``RUN:CELL`` names; or, of two runs, the cells of one id that both have a profile of.

    The other cells of two runs are named on stderr. Raises UsageError where there are none to compare.
    """
    one, other = (named(name) for name in (before, after))
    if one.cells is not None and other.cells is not None:
        return [(_only(one.run, one.cells, before), _only(other.run, other.cells, after))]
    if one.cells is not None or other.cells is not None:
        what, whole = (before, after) if one.cells is not None else (after, before)
        raise UsageError(
            f"'{what}' names a cell and '{whole}' a run", hint=f"name a cell of both: {whole}:{what.rpartition(':')[2]}"
        )
    first, second = ({cell.id: cell for cell in side.run.record.cells if cell.profile} for side in (one, other))
    pairs = [(Side(one.run, first[cell]), Side(other.run, second[cell])) for cell in first if cell in second]
    if not pairs:
        raise _nothing_in_common((before, after), (list(first), list(second)))
    every_cell = dict.fromkeys(cell.id for side in (one, other) for cell in side.run.record.cells)
    left_out = [cell for cell in every_cell if not (cell in first and cell in second)]
    if left_out:
        shown = [*left_out[:_SHOWN], *(["..."] if len(left_out) > _SHOWN else [])]
        print(f"not compared, without a profile in both runs: {', '.join(shown)}", file=sys.stderr)
    return pairs


def _only(run: Run, cells: Sequence[CellRecord], name: str) -> Side:
    if len(cells) > 1:
        listed = [cell.id for cell in cells[:_SHOWN]]
        if len(cells) > _SHOWN:
            listed.append("...")
        hint = f"give more parts of the id: {name.rpartition(':')[0]}:{cells[0].id}"
        raise UsageError(f"'{name}' names {len(cells)} cells", detail=listed, hint=hint)
    return Side(run, cells[0])


def _nothing_in_common(names: Sequence[str], profiled: Sequence[Sequence[str]]) -> UsageError:
    without = [name for name, cells in zip(names, profiled, strict=True) if not cells]
    if without:
        hint = f"measure with profiles: {PROGRAM} run CONFIG --profile symbols"
        return UsageError(f"no cell of {' and of '.join(dict.fromkeys(without))} has a profile", hint=hint)
    lines = [f"{name}:{cell}" for name, cells in zip(names, profiled, strict=True) for cell in cells[: _SHOWN // 2]]
    what = f"no cell of {names[0]} with a profile has the id of one of {names[1]}"
    return UsageError(what, detail=["cells with profiles:", *lines], hint="name a cell of each: RUN:CELL RUN:CELL")
