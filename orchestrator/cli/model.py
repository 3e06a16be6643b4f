# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator model``: what modelled time follows from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.failures import expected_failures

app = typer.Typer(help="Modelled time: the costs that published figures give.", no_args_is_help=True)

_Costs = Annotated[
    str,
    typer.Argument(
        metavar="CPU", help="A CPU, or the path of a cost table of your own.", autocompletion=completion.cost_tables
    ),
]


class Format(StrEnum):
    """Forms of a cost table."""

    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


@app.command("show")
@expected_failures
def show(
    costs: _Costs,
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="table: for people; yaml: the file, for a table of your own; json: for programs."
        ),
    ] = Format.TABLE,
) -> None:
    """Print what a CPU takes for what is counted, its frequency and its caches, each with its source."""
    from orchestrator.model.cost_file import cost_file
    from orchestrator.model.cost_sources import cost_sources

    file = cost_file(costs)
    match form:
        case Format.TABLE:
            from rich.console import Console

            from orchestrator.report.cost_sheets import cost_sheets
            from orchestrator.report.table import print_sheets

            print_sheets(cost_sheets(cost_sources(file)), Console(), [])
        case Format.YAML:
            typer.echo(file.text, nl=False)
        case Format.JSON:
            from orchestrator.results.modelled import json_text

            typer.echo(json_text(cost_sources(file)), nl=False)


@app.command("fit")
@expected_failures
def fit(
    costs: _Costs,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Runs with profiles of its calibration cells.", autocompletion=completion.runs
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table there, instead of printing it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE where it exists.")] = False,
) -> None:
    """Fit the costs of a CPU to the published figures that its cost table declares; print the new table."""
    from orchestrator.errors import UsageError
    from orchestrator.model.calibration import calibrated
    from orchestrator.model.cost_file import cost_file
    from orchestrator.model.written_table import replace_table, write_table
    from orchestrator.paths import lab_dir, user_path
    from orchestrator.results.runs import find_run

    if force and out is None:
        raise UsageError("nothing is written", where="--force", hint="name a file: --out FILE")
    file = cost_file(costs)
    fitted = calibrated(file, [find_run(run, lab_dir()) for run in runs])
    if out is None:
        typer.echo(file.text_with(fitted), nl=False)
    else:
        path = user_path(str(out))
        (replace_table if force else write_table)(path, file.text_with(fitted))
    for name, cost in fitted.costs.items():
        typer.echo(f"{name}: {cost.cycles:.4g} cycles", err=True)
    for cell in fitted.cells:
        error = f"{cell.residual:+.1%}"
        typer.echo(f"{cell.table} {cell.column}: {cell.modelled:.1f} of {cell.published:g} ns, {error}", err=True)
    if out is not None:
        typer.echo(f"written: {path}", err=True)
