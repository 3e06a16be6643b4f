# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator debug`` and ``timeline``: a stored cell measured again, with gdb in a timed call or a call's order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion, format_options, options, printing
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.cli.progress_lines import outcome
from orchestrator.errors import UsageError
from orchestrator.files import check_writable
from orchestrator.library.cell_timelines import cell_timelines
from orchestrator.library.formats import Format, Formats
from orchestrator.library.stopped_cell import entry_place, stopped_cell
from orchestrator.run.debugging import StopPlace


def debug(
    cell: Annotated[
        str,
        typer.Argument(metavar="RUN:CELL", help="A stored cell: latest:kprobe.", autocompletion=completion.runs),
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
    place = StopPlace(instruction or 1) if at is None else _entry(at)
    lab = ConsoleLab(offline=offline, verbose=verbose)
    named, record = stopped_cell(lab, cell, place)
    print(f"{record.id}: {outcome(record)}, as in run {named.run.record.run}")


def _entry(given: str) -> StopPlace:
    try:
        return entry_place(given)
    except UsageError as error:
        raise UsageError(f"--at: {error.what}") from None


TIME_LINES = Formats("time lines")


def timeline(
    first: Annotated[str, typer.Argument(metavar="RUN:CELL", help="A cell of calls.", autocompletion=completion.runs)],
    second: Annotated[
        str | None,
        typer.Argument(metavar="RUN:CELL", help="Another one, to compare with.", autocompletion=completion.runs),
    ] = None,
    form: Annotated[Format, format_options.format_option(TIME_LINES)] = TIME_LINES.default,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it to a file; default: stdout.")] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Print one call of a cell, function by function.

    It goes from the call's first to its last instruction, the kernel's entry and exit code included. The cell is
    measured again, and must have its stored value. Two cells are printed side by side from the first difference on.
    """
    check_writable(output)
    names = [name for name in (first, second) if name is not None]
    timelines = cell_timelines(ConsoleLab(offline=offline, verbose=verbose), names)
    form.write("time lines", timelines, printing.StandardOutput(output))
