# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator report``: a run's results, for people or for programs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.failures import expected_failures

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    HTML = "html"


@expected_failures
def report(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run's directory, its id, or 'latest'.", autocompletion=completion.runs),
    ] = "latest",
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="table: for people; markdown: the same for GitHub; csv: a row per cell; json: the result contract; "
            "html: a page with all that the run has.",
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
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where --format html goes; default: stdout, of a terminal report.html."),
    ] = None,
) -> None:
    """Print a run's results. Exits with 1 when a cell failed or has no outcome yet."""
    from orchestrator.cli.html_page import check_page_file
    from orchestrator.errors import UsageError
    from orchestrator.paths import lab_dir
    from orchestrator.results.contract import all_ok
    from orchestrator.results.runs import find_run

    if costs and clock is not ReportClock.MODELLED:
        raise UsageError("measured times have no costs", where="--costs", hint="add --clock modelled")
    if charts and clock is ReportClock.MODELLED:
        raise UsageError("charts have measured times only", where="--charts", hint="leave out --clock modelled")
    if out is not None:
        if form is not Format.HTML:
            raise UsageError(f"{form} goes to stdout", where="--out", hint=f"--format {form} >{out}, or --format html")
        check_page_file(out)
    found = find_run(run, lab_dir())
    if form is Format.HTML:
        _show_page(found, clock, costs or [], out)
    elif clock is ReportClock.MODELLED:
        _print_modelled(found, form, costs or [])
    else:
        _print(found.record, form)
    if charts:
        from orchestrator.benchmarks.registry import reports
        from orchestrator.report.charts import draw_charts

        sys.stdout.flush()
        for path in draw_charts(found.record, found.directory, reports()):
            print(path, file=sys.stderr)
    if found.unfinished:
        print(f"{found.unfinished} cells of run {found.record.run} have no outcome yet", file=sys.stderr)
    raise typer.Exit(0 if all_ok(found.record) and not found.unfinished else 1)


def _show_page(run: Run, clock: ReportClock, costs: Sequence[str], out: Path | None) -> None:
    from orchestrator.benchmarks.registry import reports
    from orchestrator.cli.html_page import show_page
    from orchestrator.report.html.attachments import Page
    from orchestrator.report.html.run_page import run_page
    from orchestrator.report.html.sheets_page import sheets_page

    def make(folder: str | None) -> Page:
        if clock is ReportClock.MEASURED:
            return run_page(run, reports(), folder)
        from orchestrator.model.modelled_run import known_costs, modelled_run, own_costs
        from orchestrator.report.claims import assess_modelled
        from orchestrator.report.modelled_sheets import modelled_sheets

        modelled = modelled_run(run, {**known_costs(), **own_costs(costs, run)})
        claims = assess_modelled(run.record, modelled, reports())
        return Page(sheets_page(f"{modelled.experiment}, modelled", modelled_sheets(modelled), claims))

    show_page(make, out, run.directory)


def _print(record: RunRecord, form: Format) -> None:
    match form:
        case Format.TABLE:
            from rich.console import Console

            from orchestrator.benchmarks.registry import reports
            from orchestrator.report.table import print_table

            print_table(record, Console(), reports())
        case Format.MARKDOWN:
            from orchestrator.benchmarks.registry import reports
            from orchestrator.report.markdown import render_markdown

            typer.echo(render_markdown(record, reports()), nl=False)
        case Format.CSV:
            from orchestrator.report.csv_report import render_csv

            typer.echo(render_csv(record), nl=False)
        case Format.JSON:
            from orchestrator.results.contract import json_text

            typer.echo(json_text(record), nl=False)


def _print_modelled(run: Run, form: Format, costs: Sequence[str]) -> None:
    from orchestrator.benchmarks.registry import reports
    from orchestrator.model.modelled_run import known_costs, modelled_run, own_costs
    from orchestrator.report.claims import assess_modelled
    from orchestrator.report.modelled_sheets import modelled_sheets

    modelled = modelled_run(run, {**known_costs(), **own_costs(costs, run)})
    match form:
        case Format.TABLE:
            from rich.console import Console

            from orchestrator.report.table import print_sheets

            print_sheets(modelled_sheets(modelled), Console(), assess_modelled(run.record, modelled, reports()))
        case Format.MARKDOWN:
            from orchestrator.report.markdown import render_sheets

            claims = assess_modelled(run.record, modelled, reports())
            typer.echo(render_sheets(modelled.experiment, modelled_sheets(modelled), claims), nl=False)
        case Format.CSV:
            from orchestrator.report.modelled_csv import render_modelled_csv

            typer.echo(render_modelled_csv(modelled), nl=False)
        case Format.JSON:
            from orchestrator.results.modelled import json_text

            typer.echo(json_text(modelled), nl=False)
