# SPDX-License-Identifier: GPL-2.0-only
"""A stored cell measured again, its guest stopped in a timed call until gdb detaches."""

from __future__ import annotations

import math
import re
import shlex
from functools import partial

from orchestrator.benchmarks.calls.call_cells import CallTask
from orchestrator.benchmarks.calls.sampling import calls_before_timed
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.library.measurer import Measurer
from orchestrator.library.stored_profiles import RunCell, find_cell
from orchestrator.profile.counted.generated_code import BPF_PROGRAM
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord
from orchestrator.run.debugging import Debugging, PlaceStop, StopPlace, check_gdb
from orchestrator.run.remeasured_cell import RemeasuredCell

_ENTRY = re.compile(rf"((?:{BPF_PROGRAM})?[\w.$]+)(?::([1-9]\d{{0,8}}))?", re.ASCII)
_QUOTED = 80
_LONGER = 10
"""Times the most instructions of the cell's calls: none takes as many."""


def entry_place(text: str) -> StopPlace:
    """Where timed calls enter a function or ``BPF program NAME``, with ``:N`` for the N-th time. Raises UsageError."""
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise UsageError(f"found {text[:_QUOTED]!r}; expected SYMBOL or SYMBOL:N, N from 1")
    return StopPlace(int(match[2] or 1), match[1])


def stopped_cell(measurer: Measurer, name: str, place: StopPlace) -> tuple[RunCell, CellRecord]:
    """Stop a cell ``RUN:CELL`` at a place of a timed call; the listener is told how to attach gdb.

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
        announce = partial(_announce, measurer, name, place)
        debugging = Debugging(context, remeasured.artifacts.kernel, remeasured.modules, announce)
        usual = int(most) if most == min(stored.samples) else None
        task = remeasured.boot.cells[0].task
        has_programs = isinstance(task, CallTask) and (task.kind.program is not None or task.kind.has_own_programs)
        stop = PlaceStop(debugging, place, calls_before_timed, math.ceil(_LONGER * most), usual, has_programs)
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


def _announce(measurer: Measurer, name: str, place: StopPlace, text: str) -> None:
    measurer.say(f"{place.name} of {name}: {text}")
    if place.number > 1:
        before = place.number - 1
        option = f"--instruction {before}" if place.symbol is None else f"--at {place.symbol}:{before}"
        measurer.say(f"to go back: {PROGRAM} debug {shlex.quote(name)} {option}")


def _checked_cell(cell: CellRecord) -> CellRecord:
    if cell.clock != "instructions" or cell.value is None:
        why = "has no number" if cell.value is None else f"is on clock {cell.clock}, where no place repeats"
        raise UsageError(f"{cell.id} {why}", hint="name a cell with a number on clock instructions")
    return cell
