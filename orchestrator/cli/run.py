# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator run``: run experiment files and print their tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.benchmarks.registry import reports
from orchestrator.cli import format_options, options, printing
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.cli.printing import write_page_to
from orchestrator.errors import HostError, UsageError
from orchestrator.library.dry_run import dry_runs
from orchestrator.library.formats import Format, Formats
from orchestrator.library.planned_experiments import loaded_experiments, planned_experiments, run_directories
from orchestrator.library.tree_experiments import experiments as experiments_of_tree
from orchestrator.plain_text import counted
from orchestrator.program import PROGRAM
from orchestrator.results.contract import RunRecord, all_ok, json_text
from orchestrator.results.runs import Run

RUN = Formats("run")


def run(
    configs: Annotated[
        list[Path] | None,
        typer.Argument(
            readable=False, metavar="[CONFIG...]", help="Experiment files; default in a kernel's tree: all mechanisms."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value: machines.0.cpu=athlon.")
    ] = None,
    tree: options.Tree = None,
    only: options.Only = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run's directory; for several files, their parent folder.")
    ] = None,
    jobs: options.Jobs = None,
    fleet: options.Fleet = None,
    events: Annotated[
        bool, typer.Option("--events", help="Keep the recorded events, as CSV in the run's directory.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Boot every guest, even if a saved one could be restored.")
    ] = False,
    profile: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="Profile cells by symbols, classes, stacks, caches or purposes."),
    ] = None,
    form: Annotated[
        Format,
        format_options.format_option(RUN, "As for report; of several files csv has one header, json is an array."),
    ] = RUN.default,
    _schema: Annotated[bool, format_options.schema(lambda: RunRecord | list[RunRecord])] = False,
    html: Annotated[bool, typer.Option("--html", help="Write a page, report.html in the run's directory.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the experiment's latest unfinished run.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print cells and QEMU command lines; run nothing.")
    ] = False,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Run experiments, one after the other, and print their tables.

    In a kernel's tree, a file that names no kernel is measured on the tree's. Exits with 1 if a cell failed.
    """
    files = experiments_of_tree(ConsoleLab(), configs or [], overrides or [], tree)
    _check_form(form, len(files))
    experiments = loaded_experiments(ConsoleLab(), files, profile or ())  # all, before the first one runs
    lab = ConsoleLab(jobs=jobs, events=events, fresh=fresh, offline=offline, verbose=verbose, fleet=fleet)
    if dry_run:
        run_directories(out, experiments, resumed=resume)
        for planned_run in dry_runs(lab, experiments, only or (), resumed=resume):
            for line in planned_run.lines():
                typer.echo(line)
        return
    measured: list[Run] = []
    for planned in planned_experiments(lab, experiments, only or (), out, resumed=resume):
        work = lab.resumed if resume else lab.measured
        measured.append(work(planned.experiment, planned.plan, planned.directory))
        _show(measured, len(files), form, charts=planned.experiment.charts, html=html)
    raise typer.Exit(0 if all(all_ok(finished.record) for finished in measured) else 1)


def _check_form(form: Format, count: int) -> None:
    if count > 1 and form.is_document:
        hint = f"run them one at a time, or afterwards: {PROGRAM} report RUN --format {form}"
        raise UsageError(f"{form} is a document on one run", where="--format", hint=hint)


def _show(measured: Sequence[Run], count: int, form: Format, *, charts: bool, html: bool) -> None:
    """Print the last run that was measured, of ``count``: in JSON all, if it is the last of several."""
    # What prints is loaded when the first table is complete.
    from orchestrator.pages.run_page import run_page
    from orchestrator.report.csv_export import render_csv
    from orchestrator.report.html.frame import PAGE
    from orchestrator.report.run_view import RunView

    run = measured[-1]
    if form.name == "json" and count > 1:
        if len(measured) == count:
            typer.echo(f"[{','.join(json_text(finished.record) for finished in measured)}]")
    elif form.name == "csv" and len(measured) > 1:
        typer.echo(render_csv(run.record).partition("\r\n")[2], nl=False)  # without the header
    else:
        form.write("run", RunView(run, reports()), printing.StandardOutput())
    sys.stdout.flush()
    if form.name == RUN.default.name:
        _, *names, last = RUN.names
        forms = f"{', '.join(names)} or {last}"
        print(f"\nother forms: {PROGRAM} report {run.record.run} --format {forms}", file=sys.stderr)
    print(f"run {run.record.run}: {run.directory}", file=sys.stderr)
    if charts:
        _draw(run)
    if html:
        write_page_to(run.directory / PAGE, partial(run_page, run, reports()))


def _draw(run: Run) -> None:
    from orchestrator.report.table_report import draw_charts

    try:
        drawn = draw_charts(run.record, run.directory, reports())
    except HostError as error:  # the figures are already stored
        print(f"no charts: {error}", file=sys.stderr)
    else:
        where = f"charts: {run.directory / 'charts'} ({counted(len(drawn), 'file')})"
        print(where if drawn else "these cells have no charts", file=sys.stderr)
