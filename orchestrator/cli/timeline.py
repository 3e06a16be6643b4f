# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator timeline``: one call of a stored cell from its first to its last instruction."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.artifacts.cache import BuildContext
from orchestrator.benchmarks.registry import kinds
from orchestrator.cli import options
from orchestrator.errors import LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.lab.stored import RunCell, find_cell
from orchestrator.report import timeline as report
from orchestrator.results.contract import PER_CALL
from orchestrator.results.faults import storage_faults
from orchestrator.results.stored_profile import FOLDER, file_name
from orchestrator.results.timeline import Timeline, file_beside
from orchestrator.run.again import BOOT, Again

TimelineForm = StrEnum("TimelineForm", "TEXT TRACE HTML")


def timeline(
    first: Annotated[str, typer.Argument(metavar="RUN:CELL", help="A cell of calls.", autocompletion=options.runs)],
    second: Annotated[
        str | None,
        typer.Argument(metavar="RUN:CELL", help="Another one, to compare with.", autocompletion=options.runs),
    ] = None,
    form: Annotated[
        TimelineForm,
        typer.Option("--format", help="text; trace: JSON for Perfetto and chrome://tracing; html: a page."),
    ] = TimelineForm.TEXT,
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
    for one in cells:
        _check(one)
    with options.printed_steps(verbose=verbose):
        context = options.open_context(offline=offline)
        found = [_measured(context, one) for one in cells]
    text = report.text(found[0]) if len(found) == 1 else report.difference_text(*found)
    if form is TimelineForm.TRACE:
        text = report.trace(found)
    elif form is TimelineForm.HTML:
        text = report.page(found, text)
    if output is None:
        typer.echo(text, nl=False)
        return
    with storage_faults(output):
        output.write_text(text, encoding="utf-8")


def _check(one: RunCell) -> None:
    """Raise UsageError for a cell that has no call to show, LabError for one without a number."""
    cell = one.cell
    if cell.status != "ok":
        reason = (cell.reason or "").splitlines()[:1]
        raise LabError(f"cell {cell.id} is {cell.status}, and has no call to show", detail=reason)
    kind = kinds().of_benchmark(cell.benchmark)
    if kind is None or "stacks" not in kind.table.PROFILE_PARTS or cell.metric != PER_CALL:
        raise UsageError(f"a time line is of one call, and cell {cell.id} has the {cell.metric} of {cell.benchmark}")
    if cell.clock == "wall":
        what = f"cell {cell.id} was measured by the wall clock, and a time line needs the exact one"
        raise UsageError(what, hint="set clock: instructions")


def _measured(context: BuildContext, one: RunCell) -> Timeline:
    with ScratchFolder("orchestrator-timeline-") as folder:
        Again.of(context, kinds(), one.run, one.cell, ("order",)).measure(folder)
        found = Timeline.stored_in(file_beside(folder / BOOT / FOLDER / file_name(one.cell.id)))
    if found.instructions != one.cell.value:
        calls = f"this call takes {found.instructions} instructions, and the cell's value is {one.cell.value:.10g}"
        options.say(f"{one.cell.id}: {calls}")
    return found
