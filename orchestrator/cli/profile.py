# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator profile``: where the instructions of a run's cells went."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.failures import expected_failures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.results.profile import CellProfile


class Form(StrEnum):
    """Forms of a profile, and of a difference between two."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


@expected_failures
def profile(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run's directory, its id, or 'latest'.", autocompletion=completion.runs),
    ] = "latest",
    cell: Annotated[
        str | None, typer.Argument(metavar="CELL", help="A cell's id, or parts of it, such as kprobe; default: all.")
    ] = None,
    form: Annotated[
        Form, typer.Option("--format", help="table: for people; markdown: the same for GitHub; json: for programs.")
    ] = Form.TABLE,
    annotate: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="The function's instructions, each with its count per call.")
    ] = None,
    callgrind: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the profile of one cell for KCachegrind.")
    ] = None,
    folded: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the folded stacks of one cell.")] = None,
    flame_graph: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the stacks of one cell, as SVG.")
    ] = None,
) -> None:
    """Print where the instructions of each call went: by symbol, by class of instruction, and what missed in caches."""
    profiles = _profiles(run, cell)
    files = {"callgrind": callgrind, "folded": folded, "flame_graph": flame_graph}
    if any(files.values()):
        for kind, file in files.items():
            if file is not None:
                _write(profiles, kind, file)
    elif annotate is not None:
        from orchestrator.profile.annotation import annotated

        for one in profiles:
            typer.echo(f"{one.cell}\n{annotated(one, annotate)}")
    else:
        _print(profiles, form)


def _write(profiles: Sequence[CellProfile], kind: str, file: Path) -> None:
    """Write the profile of the only cell in one of the formats for other programs."""
    from orchestrator.errors import UsageError
    from orchestrator.report.callgrind import callgrind_text
    from orchestrator.report.flame_graph import flame_graph
    from orchestrator.report.folded_stacks import folded_text
    from orchestrator.results.faults import storage_faults

    if len(profiles) != 1:
        cells = [one.cell for one in profiles[:20]]
        raise UsageError(f"{len(profiles)} cells do not go into one file", detail=cells, hint="name one of them: CELL")
    formats = {"callgrind": callgrind_text, "folded": folded_text, "flame_graph": flame_graph}
    text = formats[kind](profiles[0])
    with storage_faults(file):
        file.write_text(text)


def _profiles(run: str, cell: str | None) -> Sequence[CellProfile]:
    from orchestrator.paths import lab_dir
    from orchestrator.results.chosen_cell import cells_named
    from orchestrator.results.profile import load_profile
    from orchestrator.results.runs import find_run

    found = find_run(run, lab_dir())
    cells = found.record.cells if cell is None else cells_named(found.record, cell)
    wanted = [one for one in cells if one.profile is not None] or cells[:1]
    return [load_profile(found.directory, one) for one in wanted]


def _print(profiles: Sequence[CellProfile], form: Form) -> None:
    from orchestrator.profile.classes import per_call
    from orchestrator.report import profile_json, profile_sheets
    from orchestrator.report.cache_sheets import cache_sheets

    classes = [per_call(one) for one in profiles]
    if form is Form.JSON:
        content = [profile_json.profile_json(*both) for both in zip(profiles, classes, strict=True)]
        typer.echo(profile_json.text(content), nl=False)
        return
    sheets = []
    for one, found in zip(profiles, classes, strict=True):
        sheets += [profile_sheets.profile_sheet(one, found), *cache_sheets(one)]
    if form is Form.MARKDOWN:
        from orchestrator.report.markdown import render_sheets

        typer.echo(render_sheets("Profiles", sheets), nl=False)
    else:
        from rich.console import Console

        from orchestrator.report.table import print_sheets

        print_sheets(sheets, Console())
