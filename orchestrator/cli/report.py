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
    JUNIT = "junit"
    KCIDB = "kcidb"
    HTML = "html"


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
            help="table: for people; markdown: the same for GitHub; csv: a row per cell; json: the result contract; "
            "junit, kcidb: for CI systems; html: a page with all that the run has.",
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
    origin: Annotated[
        str | None, typer.Option(metavar="NAME", help="The CI system's name at KCIDB, for --format kcidb.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of --format json, of no run.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where --format html goes; default: stdout, of a terminal report.html."),
    ] = None,
) -> None:
    """Print a run's results. Exits with 1 when a cell failed or has no outcome yet."""
    from orchestrator.cli.html_page import check_page_file
    from orchestrator.paths import lab_dir
    from orchestrator.report.claims_layout import all_claims, decided_claims
    from orchestrator.results.baselines import LATEST
    from orchestrator.results.contract import all_ok
    from orchestrator.results.runs import find_run

    options = {"--costs": costs, "--charts": charts, "--claims": claims, "--schema": schema, "--out": out}
    given = [name for name, value in options.items() if value]
    given += [name for name, value in {"--origin": origin, "RUN": run}.items() if value is not None]
    _check(given, form, clock)
    if schema:
        _print_schema(clock)
        return
    if out is not None:
        check_page_file(out)
    layout = all_claims if claims else decided_claims
    found = find_run(run or LATEST, lab_dir())
    if form is Format.HTML:
        _show_page(found, clock, costs or [], out)
    elif clock is ReportClock.MODELLED:
        _print_modelled(found, form, costs or [], layout)
    elif form in (Format.JUNIT, Format.KCIDB):
        _print_for_ci(found, form, origin)
    else:
        _print(found.record, form, layout)
    if charts:
        from orchestrator.benchmarks.registry import reports
        from orchestrator.report.charts import draw_charts

        sys.stdout.flush()
        for path in draw_charts(found.record, found.directory, reports()):
            print(path, file=sys.stderr)
    if found.unfinished:
        print(found.unfinished_sentence, file=sys.stderr)
    raise typer.Exit(0 if all_ok(found.record) and not found.unfinished else 1)


def _check(given: Sequence[str], form: Format, clock: ReportClock) -> None:
    """Raise UsageError for options that do not go together: these, of a form and a clock."""
    from orchestrator.errors import UsageError

    is_modelled, exported = clock is ReportClock.MODELLED, (Format.JUNIT, Format.KCIDB)
    others = [name for name in given if name != "--schema"]
    wrong = [
        ("--schema", bool(others), "a schema is of all runs", f"leave out {', '.join(others)}"),
        ("--schema", form not in (Format.TABLE, Format.JSON), "a schema is of JSON", f"leave out --format {form}"),
        ("--costs", not is_modelled, "measured times have no costs", "add --clock modelled"),
        ("--charts", is_modelled, "charts have measured times only", "leave out --clock modelled"),
        ("--claims", form not in (Format.TABLE, Format.MARKDOWN), f"{form} has no claims", "leave out --claims"),
        ("--out", form is not Format.HTML, f"{form} goes to stdout", f"--format {form} >FILE, or --format html"),
        ("--origin", form is not Format.KCIDB, f"{form} has no origin", "add --format kcidb"),
    ]
    for option, is_wrong, what, hint in wrong:
        if option in given and is_wrong:
            raise UsageError(what, where=option, hint=hint)
    if is_modelled and form in exported:
        raise UsageError(f"{form} has measured figures only", where="--format", hint="leave out --clock modelled")


def _show_page(run: Run, clock: ReportClock, costs: Sequence[str], out: Path | None) -> None:
    from orchestrator.benchmarks.registry import reports
    from orchestrator.cli.html_page import show_page
    from orchestrator.report.html.attachments import Page
    from orchestrator.report.html.run_page import run_page
    from orchestrator.report.html.sheets_page import sheets_page
    from orchestrator.report.html.writing import PAGE

    def make(folder: str | None) -> Page:
        if clock is ReportClock.MEASURED:
            return run_page(run, reports(), folder)
        from orchestrator.model.modelled_run import known_costs, modelled_run, own_costs
        from orchestrator.report.claims import assess_modelled
        from orchestrator.report.modelled_sheets import modelled_sheets
        from orchestrator.report.modelled_summary import modelled_summary

        modelled = modelled_run(run, {**known_costs(), **own_costs(costs, run)})
        claims = assess_modelled(run.record, modelled, reports())
        sentences = modelled_summary(modelled, claims)
        return Page(sheets_page(f"{modelled.experiment}, modelled", modelled_sheets(modelled), claims, sentences))

    show_page(make, out, run.directory / PAGE)


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


def _print_for_ci(run: Run, form: Format, origin: str | None) -> None:
    from orchestrator.report.junit_report import render_junit
    from orchestrator.report.kcidb_report import ORIGIN, render_kcidb
    from orchestrator.results.cell_consoles import last_lines
    from orchestrator.results.origin import origin_of

    made_with = origin_of(run.directory)
    consoles = last_lines(run.directory, [cell.id for cell in run.record.cells if cell.status == "failed"])
    if form is Format.JUNIT:
        typer.echo(render_junit(run.record, made_with, consoles), nl=False)
    else:
        typer.echo(render_kcidb(run.record, made_with, consoles, origin or ORIGIN), nl=False)


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
