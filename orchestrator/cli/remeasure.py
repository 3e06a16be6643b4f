# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator debug`` and ``timeline``: a stored cell measured again, with gdb in a timed call or a call's order."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.artifacts.cache import BuildContext
from orchestrator.benchmarks.calls.call_programs import calls_before_timed
from orchestrator.benchmarks.registry import kinds
from orchestrator.cli import options
from orchestrator.cli.console_lab import outcome
from orchestrator.errors import LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.library.formats import Format, Formats
from orchestrator.library.stored import RunCell, find_cell
from orchestrator.profile.stored.profile_files import FOLDER, file_beside, file_name
from orchestrator.profile.stored.timeline import Timeline
from orchestrator.program import PROGRAM
from orchestrator.results.contract import PER_CALL, CellRecord
from orchestrator.run.debugging import Debugging, PlaceStop, StopPlace, check_gdb
from orchestrator.run.remeasured_cell import BOOT, RemeasuredCell

_ENTRY = re.compile(r"([\w.$]+)(?::([1-9]\d{0,8}))?", re.ASCII)
_QUOTED = 80
_LONGER = 10
"""Times the most instructions of the cell's calls: none takes as many."""


def debug(
    cell: Annotated[
        str,
        typer.Argument(metavar="RUN:CELL", help="A stored cell: latest:kprobe.", autocompletion=options.runs),
    ],
    at: Annotated[
        str | None,
        typer.Option(metavar="SYMBOL[:N]", help="Stop where the timed calls enter a function for the N-th time."),
    ] = None,
    instruction: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop before the N-th instruction of a call; default: 1.")
    ] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Stop a stored cell's guest in a timed call, and wait for gdb.

    Measures the cell again; a place is the same instruction each time. Exits with 1 unless the cell has its stored
    value afterwards.
    """
    options.check_one({"--at": at is not None, "--instruction": instruction is not None})
    check_gdb()
    named = find_cell(cell)
    stored = _checked_cell(named.cell)
    place = StopPlace(instruction or 1) if at is None else _entry(at)
    most = max(stored.samples)
    if place.symbol is None and place.number > most:
        raise UsageError(f"a call of {stored.id} has {most:g} instructions, not {place.number}")
    with options.building(offline=offline, verbose=verbose) as context, ScratchFolder("orchestrator-debug-") as folder:
        remeasured = RemeasuredCell.of(context, kinds(), named.run, stored)
        debugging = Debugging(
            context, remeasured.artifacts.kernel, remeasured.modules, lambda text: _say(text, cell, place)
        )
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
    print(f"{stored.id}: {outcome(record)}, as in run {named.run.record.run}")


def _checked_cell(cell: CellRecord) -> CellRecord:
    if cell.clock != "instructions" or cell.value is None:
        why = "has no number" if cell.value is None else f"is on clock {cell.clock}, where no place repeats"
        raise UsageError(f"{cell.id} {why}", hint="name a cell with a number on clock instructions")
    return cell


def _entry(given: str) -> StopPlace:
    match = _ENTRY.fullmatch(given)
    if match is None:
        raise UsageError(f"--at: found {given[:_QUOTED]!r}; expected SYMBOL or SYMBOL:N, N from 1")
    return StopPlace(int(match[2] or 1), match[1])


def _say(text: str, cell: str, place: StopPlace) -> None:
    options.say(f"{place.name} of {cell}: {text}")
    if place.number > 1:
        before = place.number - 1
        option = f"--instruction {before}" if place.symbol is None else f"--at {place.symbol}:{before}"
        options.say(f"to go back: {PROGRAM} debug {shlex.quote(cell)} {option}")


TIME_LINES = Formats("time lines")


def timeline(
    first: Annotated[str, typer.Argument(metavar="RUN:CELL", help="A cell of calls.", autocompletion=options.runs)],
    second: Annotated[
        str | None,
        typer.Argument(metavar="RUN:CELL", help="Another one, to compare with.", autocompletion=options.runs),
    ] = None,
    form: Annotated[Format, options.format_option(TIME_LINES)] = TIME_LINES.default,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it to a file; default: stdout.")] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Print one call of a cell, function by function.

    It goes from the call's first to its last instruction, the kernel's entry and exit code included. The cell is
    measured again, and must have its stored value. Two cells are printed side by side from the first difference on.
    """
    options.check_writable(output)
    cells = [find_cell(name) for name in (first, second) if name is not None]
    for cell in cells:
        _check(cell)
    with options.building(offline=offline, verbose=verbose) as context:
        timelines = [_measured(context, run_cell) for run_cell in cells]
    form.write("time lines", timelines, options.StandardOutput(output))


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


def _measured(context: BuildContext, cell: RunCell) -> Timeline:
    with ScratchFolder("orchestrator-timeline-") as folder:
        RemeasuredCell.of(context, kinds(), cell.run, cell.cell, ("order",)).measure(folder)
        measured = Timeline.stored_in(file_beside(folder / BOOT / FOLDER / file_name(cell.cell.id)))
    if measured.instructions != cell.cell.value:
        calls = f"this call takes {measured.instructions} instructions, and the cell's value is {cell.cell.value:.10g}"
        options.say(f"{cell.cell.id}: {calls}")
    return measured
