# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator debug``: gdb at a place of a stored cell's timed calls."""

from __future__ import annotations

import math
import re
import shlex
from typing import Annotated

import typer

from orchestrator.benchmarks.calls.call_programs import calls_before_timed
from orchestrator.benchmarks.registry import kinds
from orchestrator.cli import options
from orchestrator.cli.measuring import outcome
from orchestrator.errors import LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.lab.stored import find_cell
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord
from orchestrator.run.again import Again
from orchestrator.run.debugging import Debugging, Place, PlaceStop, check_gdb

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
    stored = _checked(named.cell)
    place = Place(instruction or 1) if at is None else _entry(at)
    most = max(stored.samples)
    if place.symbol is None and place.number > most:
        raise UsageError(f"a call of {stored.id} has {most:g} instructions, not {place.number}")
    with options.printed_steps(verbose=verbose), ScratchFolder("orchestrator-debug-") as folder:
        context = options.open_context(offline=offline)
        again = Again.of(context, kinds(), named.run, stored)
        debugging = Debugging(context, again.artifacts.kernel, again.modules, lambda text: _say(text, cell, place))
        usual = int(most) if most == min(stored.samples) else None
        stop = PlaceStop(debugging, place, calls_before_timed, math.ceil(_LONGER * most), usual)
        try:
            record = again.measure(folder, stop.watch)
        except LabError as error:
            raise stop.error or error from None
        if stop.error is not None:
            raise stop.error
        if not stop.has_begun:
            raise UsageError(f"{stored.id} makes no timed calls, and has no such place", hint="name a cell of calls")
        if not stop.has_stopped:
            raise UsageError(f"the timed calls of {stored.id} do not come to {place.name}")
    print(f"{stored.id}: {outcome(record)}, as in run {named.run.record.run}")


def _checked(cell: CellRecord) -> CellRecord:
    if cell.clock != "instructions" or cell.value is None:
        why = "has no number" if cell.value is None else f"is on clock {cell.clock}, where no place repeats"
        raise UsageError(f"{cell.id} {why}", hint="name a cell with a number on clock instructions")
    return cell


def _entry(given: str) -> Place:
    found = _ENTRY.fullmatch(given)
    if found is None:
        raise UsageError(f"--at: found {given[:_QUOTED]!r}; expected SYMBOL or SYMBOL:N, N from 1")
    return Place(int(found[2] or 1), found[1])


def _say(text: str, cell: str, place: Place) -> None:
    options.say(f"{place.name} of {cell}: {text}")
    if place.number > 1:
        before = place.number - 1
        option = f"--instruction {before}" if place.symbol is None else f"--at {place.symbol}:{before}"
        options.say(f"to go back: {PROGRAM} debug {shlex.quote(cell)} {option}")
