# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator report``: a run's results, for people or for programs."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.failures import expected_failures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.report.claims_layout import ClaimsLayout
    from orchestrator.results.contract import RunRecord
    from orchestrator.results.runs import Run


class ReportClock(StrEnum):
    """What times a report has."""

    MEASURED = "measured"
    MODELLED = "modelled"


class Format(StrEnum):
    """Forms of a report."""

    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


@expected_failures
def report(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run's directory, its id, or 'latest'.",
            show_default="latest",
            autocompletion=completion.runs,
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="table: for people; markdown: the same for GitHub; csv: a row per cell; json: the result contract.",
        ),
    ] = Format.TABLE,
    clock: Annotated[
        ReportClock,
        typer.Option(help="measured: as the run did; modelled: what CPUs would take for what its profiles counted."),
    ] = ReportClock.MEASURED,
    costs: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="A cost table of your own, for modelled times.")
    ] = None,
    charts: Annotated[
        bool, typer.Option("--charts", help="Draw charts too, as PNG and SVG in the run's directory.")
    ] = False,
    claims: Annotated[
        bool, typer.Option("--claims", help="Print every claim of the documents with its figures, undecided ones too.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of --format json, of no run.")
    ] = False,
) -> None:
    """Print a run's results. Exits with 1 when a cell failed or has no outcome yet."""
    from orchestrator.errors import UsageError
    from orchestrator.paths import lab_dir
    from orchestrator.report.claims_layout import all_claims, decided_claims
    from orchestrator.results.contract import all_ok
    from orchestrator.results.runs import LATEST, find_run

    if costs and clock is not ReportClock.MODELLED:
        raise UsageError("measured times have no costs", where="--costs", hint="add --clock modelled")
    if charts and clock is ReportClock.MODELLED:
        raise UsageError("charts have measured times only", where="--charts", hint="leave out --clock modelled")
    if schema:
        if run is not None or form not in (Format.TABLE, Format.JSON):
            given = run if run is not None else f"--format {form}"
            raise UsageError("a schema is of all runs' JSON", where="--schema", hint=f"leave out {given}")
        _print_schema(clock)
        return
    if claims and form not in (Format.TABLE, Format.MARKDOWN):
        raise UsageError(f"{form} has no claims", where="--claims", hint="--format table and markdown have them")
    layout = all_claims if claims else decided_claims
    found = find_run(run or LATEST, lab_dir())
    if clock is ReportClock.MODELLED:
        _print_modelled(found, form, costs or [], layout)
    else:
        _print(found.record, form, layout)
    if charts:
        from orchestrator.benchmarks.registry import reports
        from orchestrator.report.charts import draw_charts

        sys.stdout.flush()
        for path in draw_charts(found.record, found.directory, reports()):
            print(path, file=sys.stderr)
    if found.unfinished:
        print(f"{found.unfinished} cells of run {found.record.run} have no outcome yet", file=sys.stderr)
    raise typer.Exit(0 if all_ok(found.record) and not found.unfinished else 1)


def _print(record: RunRecord, form: Format, claims: ClaimsLayout) -> None:
    match form:
        case Format.TABLE:
            from rich.console import Console

            from orchestrator.benchmarks.registry import reports
            from orchestrator.report.table import print_table

            print_table(record, Console(), reports(), claims)
        case Format.MARKDOWN:
            from orchestrator.benchmarks.registry import reports
            from orchestrator.report.markdown import render_markdown

            typer.echo(render_markdown(record, reports(), claims), nl=False)
        case Format.CSV:
            from orchestrator.report.csv_report import render_csv

            typer.echo(render_csv(record), nl=False)
        case Format.JSON:
            from orchestrator.results.contract import json_text

            typer.echo(json_text(record), nl=False)


def _print_schema(clock: ReportClock) -> None:
    import json

    from orchestrator.results.contract import json_schema
    from orchestrator.results.modelled import modelled_schema

    schema = json_schema() if clock is ReportClock.MEASURED else modelled_schema()
    typer.echo(json.dumps(schema, indent=2))


def _print_modelled(run: Run, form: Format, costs: Sequence[str], layout: ClaimsLayout) -> None:
    from orchestrator.benchmarks.registry import reports
    from orchestrator.model.modelled_run import known_costs, modelled_run, own_costs
    from orchestrator.report.claims import assess_modelled
    from orchestrator.report.modelled_sheets import modelled_sheets
    from orchestrator.report.modelled_summary import modelled_summary

    modelled = modelled_run(run, {**known_costs(), **own_costs(costs, run)})
    assessments = assess_modelled(run.record, modelled, reports())
    claims = [layout(one, run.record.run) for one in assessments]
    sentences = modelled_summary(modelled, assessments)
    match form:
        case Format.TABLE:
            from rich.console import Console

            from orchestrator.report.table import print_sheets

            print_sheets(modelled_sheets(modelled), Console(), claims, sentences)
        case Format.MARKDOWN:
            from orchestrator.report.markdown import render_sheets

            sheets = modelled_sheets(modelled)
            typer.echo(render_sheets(modelled.experiment, sheets, claims, sentences), nl=False)
        case Format.CSV:
            from orchestrator.report.modelled_csv import render_modelled_csv

            typer.echo(render_modelled_csv(modelled), nl=False)
        case Format.JSON:
            from orchestrator.results.modelled import json_text

            typer.echo(json_text(modelled), nl=False)
