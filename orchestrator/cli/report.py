# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator report``: a run's results, for people or for programs."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.cli.failures import expected_failures


class Format(StrEnum):
    """Forms of a report."""

    TABLE = "table"
    JSON = "json"


@expected_failures
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory, its id, or 'latest'.")] = "latest",
    form: Annotated[
        Format, typer.Option("--format", help="table: for people; json: the result contract.")
    ] = Format.TABLE,
) -> None:
    """Print a run's results. Exits with 1 when a cell failed or has no outcome yet."""
    from rich.console import Console

    from orchestrator.experiment.runner import all_ok
    from orchestrator.paths import lab_dir
    from orchestrator.report.json_report import render_json
    from orchestrator.report.table import print_table
    from orchestrator.results.runs import find_run

    found = find_run(run, lab_dir())
    if form is Format.JSON:
        typer.echo(render_json(found.record), nl=False)
    else:
        print_table(found.record, Console())
    if found.unfinished:
        print(f"{found.unfinished} cells of run {found.record.run} have no outcome yet", file=sys.stderr)
    raise typer.Exit(0 if all_ok(found.record) and not found.unfinished else 1)
