# SPDX-License-Identifier: GPL-2.0-only
"""A stored cell measured again, its guest stopped in a timed call until gdb detaches."""

from __future__ import annotations

import math
from collections.abc import Callable

from orchestrator.benchmarks.calls.call_programs import calls_before_timed
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.library.measurer import Measurer
from orchestrator.library.stored import RunCell, find_cell
from orchestrator.results.contract import CellRecord
from orchestrator.run.debugging import Debugging, PlaceStop, StopPlace, check_gdb
from orchestrator.run.remeasured_cell import RemeasuredCell

_LONGER = 10
"""Times the most instructions of the cell's calls: none takes as many."""


def stopped_cell(
    measurer: Measurer, name: str, place: StopPlace, told: Callable[[str], None]
) -> tuple[RunCell, CellRecord]:
    """Stop a cell ``RUN:CELL`` at a place of a timed call; ``told`` gets how to attach gdb.

    Returns the stored cell and its record of this time. Raises UsageError for a cell or a place that cannot be stopped
    at, LabError if the cell has not its stored value.
    """
    check_gdb()
    named = find_cell(name)
    stored = _checked_cell(named.cell)
    most = max(stored.samples)
    if place.symbol is None and place.number > most:
        raise UsageError(f"a call of {stored.id} has {most:g} instructions, not {place.number}")
    with measurer.building() as context, ScratchFolder("orchestrator-debug-") as folder:
        remeasured = RemeasuredCell.of(context, kinds(), named.run, stored)
        debugging = Debugging(context, remeasured.artifacts.kernel, remeasured.modules, told)
        usual = int(most) if most == min(stored.samples) else None
        stop = PlaceStop(debugging, place, calls_before_timed, math.ceil(_LONGER * most), usual)
        try:
            record = remeasured.measure(folder, stop.watch)
        except LabError as error:
            raise stop.error or error from None
        if stop.error is not None:
            raise stop.error
        if not stop.has_begun:
            raise UsageError(f"{stored.id} makes no timed calls, and has no such place", hint="name a cell of calls")
        if not stop.has_stopped:
            raise UsageError(f"the timed calls of {stored.id} do not come to {place.name}")
    return named, record


def _checked_cell(cell: CellRecord) -> CellRecord:
    if cell.clock != "instructions" or cell.value is None:
        why = "has no number" if cell.value is None else f"is on clock {cell.clock}, where no place repeats"
        raise UsageError(f"{cell.id} {why}", hint="name a cell with a number on clock instructions")
    return cell
