# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator diff``: what differs between two cells, or between the cells of two runs, by symbol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.failures import expected_failures
from orchestrator.cli.profile import Form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.results.contract import CellRecord
    from orchestrator.results.profile import CellProfile
    from orchestrator.results.profile_difference import ProfileDifference
    from orchestrator.results.runs import Run

_HELP = "A run, or one of its cells: RUN:CELL, such as latest:kprobe."


@expected_failures
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help=_HELP, autocompletion=completion.runs)],
    after: Annotated[str, typer.Argument(metavar="B", help=_HELP, autocompletion=completion.runs)],
    form: Annotated[
        Form, typer.Option("--format", help="table: for people; markdown: the same for GitHub; json: for programs.")
    ] = Form.TABLE,
) -> None:
    """Print what B's calls execute more than A's, by symbol, the largest change first."""
    _print([_difference(*pair) for pair in _pairs(before, after)], form)


_Side = tuple["Run", "CellRecord"]


def _pairs(before: str, after: str) -> Sequence[tuple[_Side, _Side]]:
    """Two cells; or of two runs, the cells that both have a profile of."""
    from orchestrator.errors import UsageError

    one, other = _side(before), _side(after)
    if (":" in before) != (":" in after):
        raise UsageError(f"found {before} and {after}; one is a run, the other a cell", hint="name a cell in both")
    if ":" in before:
        return [(_only(one, before), _only(other, after))]
    second = {cell.id: (run, cell) for run, cell in other}
    pairs = [((run, cell), second[cell.id]) for run, cell in one if cell.id in second]
    if not pairs:
        hint = "name one cell of each: RUN:CELL; profiles are measured with orchestrator run CONFIG --profile symbols"
        raise UsageError(f"{before} and {after} have no cell of one id that has a profile in both", hint=hint)
    return pairs


def _side(name: str) -> Sequence[_Side]:
    """A run's cells with profiles; those that ``RUN:CELL`` names."""
    from orchestrator.paths import lab_dir
    from orchestrator.results.chosen_cell import cells_named
    from orchestrator.results.runs import find_run

    run, colon, cell = name.rpartition(":") if ":" in name else (name, "", "")
    found = find_run(run, lab_dir())
    if colon:
        return [(found, one) for one in cells_named(found.record, cell)]
    return [(found, one) for one in found.record.cells if one.profile is not None]


def _only(sides: Sequence[_Side], name: str) -> _Side:
    from orchestrator.errors import UsageError

    if len(sides) > 1:
        raise UsageError(
            f"'{name}' names {len(sides)} cells",
            detail=[cell.id for _, cell in sides[:20]],
            hint="give more parts of the id: RUN:pentium4/kprobe",
        )
    return sides[0]


def _difference(before: _Side, after: _Side) -> ProfileDifference:
    from orchestrator.results.profile_difference import difference

    return difference(_loaded(before), _loaded(after))


def _loaded(side: _Side) -> CellProfile:
    from orchestrator.results.profile import load_profile

    run, cell = side
    return load_profile(run.directory, cell)


def _print(differences: Sequence[ProfileDifference], form: Form) -> None:
    from orchestrator.report import profile_json, profile_sheets

    if form is Form.JSON:
        typer.echo(profile_json.text([profile_json.difference_json(one) for one in differences]), nl=False)
        return
    sheets = [profile_sheets.difference_sheet(one) for one in differences]
    if form is Form.MARKDOWN:
        from orchestrator.report.markdown import render_sheets

        typer.echo(render_sheets("Differences", sheets), nl=False)
    else:
        from rich.console import Console

        from orchestrator.report.table import print_sheets

        print_sheets(sheets, Console())
