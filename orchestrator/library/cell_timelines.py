# SPDX-License-Identifier: GPL-2.0-only
"""The time lines of stored cells: each is measured again, and one call of it followed function by function."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.library.measurer import Measurer
from orchestrator.library.stored_profiles import RunCell, find_cell
from orchestrator.profile.stored.profile_files import FOLDER, file_beside, file_name
from orchestrator.profile.stored.timeline import Timeline
from orchestrator.results.contract import PER_CALL
from orchestrator.run.remeasured_cell import BOOT, RemeasuredCell


def cell_timelines(measurer: Measurer, names: Sequence[str]) -> Sequence[Timeline]:
    """One call of each cell ``RUN:CELL``, from its first to its last instruction.

    Raises UsageError for a cell that has no call to show, LabError for one without a number.
    """
    cells = [find_cell(name) for name in names]
    for cell in cells:
        _check(cell)
    with measurer.building() as context:
        return [_measured(measurer, context, cell) for cell in cells]


def _check(run_cell: RunCell) -> None:
    """Raise UsageError for a cell that has no call to show, LabError for one without a number."""
    cell = run_cell.cell
    if cell.status != "ok":
        reason = (cell.reason or "").splitlines()[:1]
        raise LabError(f"cell {cell.id} is {cell.status}, and has no call to show", detail=reason)
    kind = kinds().of_benchmark(cell.benchmark)
    if kind is None or "stacks" not in kind.table.PROFILE_PARTS or cell.metric != PER_CALL:
        raise UsageError(f"a time line is of one call, and cell {cell.id} has the {cell.metric} of {cell.benchmark}")
    if cell.clock == "wall":
        what = f"cell {cell.id} was measured by the wall clock, and a time line needs the exact one"
        raise UsageError(what, hint="set clock: instructions")


def _measured(measurer: Measurer, context: BuildContext, cell: RunCell) -> Timeline:
    with ScratchFolder("orchestrator-timeline-") as folder:
        RemeasuredCell.of(context, kinds(), cell.run, cell.cell, ("order",)).measure(folder)
        measured = Timeline.stored_in(file_beside(folder / BOOT / FOLDER / file_name(cell.cell.id)))
    if measured.instructions != cell.cell.value:
        calls = f"this call takes {measured.instructions} instructions, and the cell's value is {cell.cell.value:.10g}"
        measurer.say(f"{cell.cell.id}: {calls}")
    return measured
