# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator nightly``: measure, compare with the last good nightly run, report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.benchmarks.registry import reports
from orchestrator.cli import format_options, options, printing
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.library.nightly_report import NightlyReport
from orchestrator.library.nightly_run import NightlyRequest, measured_night
from orchestrator.nightly.night import NightlyResult, summary_lines
from orchestrator.nightly.night_json import NightReport, UnmeasuredNight
from orchestrator.nightly.webhook import Webhook


def nightly(
    config: Annotated[
        Path | None,
        typer.Argument(
            readable=False, metavar="[CONFIG]", help="Experiment file; default: the lab's configs/nightly.yaml."
        ),
    ] = None,
    overrides: options.Overrides = None,
    jobs: options.Jobs = None,
    fleet: options.Fleet = None,
    mail: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the report there, as a mail without a recipient.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML, in which cells that exceed their budget fail.")
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="ORCHESTRATOR_WEBHOOK", show_envvar=True, help="Post a JSON summary there."),
    ] = None,
    _schema: Annotated[bool, format_options.schema(lambda: NightReport | UnmeasuredNight)] = False,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure, compare with the last good nightly run, and report.

    Resumes an interrupted run. Exits with 0 if the run is good, 1 if a cell failed or exceeds its budget.
    """
    report = NightlyReport(mail, junit, Webhook(webhook) if webhook else None, printing.say)
    lab = ConsoleLab(jobs=jobs, offline=offline, verbose=verbose, fleet=fleet)
    result = measured_night(lab, NightlyRequest(config, overrides or (), report), _print)
    raise typer.Exit(0 if result.is_good else 1)


def _print(result: NightlyResult, mail: Path) -> None:
    for line in (*summary_lines(result, reports()), f"report: {mail}"):
        typer.echo(line)
    sys.stdout.flush()
