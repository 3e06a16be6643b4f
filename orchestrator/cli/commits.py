# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator bisect`` and ``series``: an experiment measured at many commits of a tree."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import format_options, options, printing
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.comparison.series_forms import SeriesView
from orchestrator.comparison.series_json import PrintedSeries
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.formats import Format, Formats
from orchestrator.library.measured_series import UnmeasuredSeries
from orchestrator.profile.printed.profile_sheets import difference_sheet
from orchestrator.report.bisection_json import PrintedBisection
from orchestrator.report.history_sheets import bisection_sheet
from orchestrator.report.sheet_forms import SheetsView


def bisect(
    config: Annotated[
        Path, typer.Argument(readable=False, metavar="CONFIG", help="Experiment file that names something in the tree.")
    ],
    good: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit of the tree before the change.")],
    bad: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit after it.")],
    cell: Annotated[
        str | None, typer.Option(metavar="ID", help="The cell to measure: its id, or parts such as kprobe.")
    ] = None,
    overrides: options.Overrides = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    form: format_options.SheetFormat = format_options.SHEETS.default,
    _schema: Annotated[bool, format_options.schema(lambda: PrintedBisection)] = False,
    limit: options.Limit = 20,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Find the first commit at which a cell costs as much as at --bad.

    Also prints what it executes differently. Commits that do not build or boot are skipped. Exits with 1 if skipped
    commits leave several candidates.
    """
    request = ExperimentRequest(config, overrides or (), kconfig=kconfig, make=make or ())
    change = ConsoleLab(offline=offline, verbose=verbose).bisect(request, good, bad, cell=cell)
    by_symbol = (difference_sheet(difference, limit or None) for difference in change.differences)
    sheets = chain([bisection_sheet(change.bisected)], by_symbol)
    for_programs = PrintedBisection.of(change.bisected, change.differences).json_text
    form.write("sheets", SheetsView("Bisection", sheets, for_programs), printing.StandardOutput())
    raise typer.Exit(0 if change.is_decided else 1)


SERIES = Formats("series")


def series_command(
    span: Annotated[str, typer.Argument(metavar="[TREE@]BASE..TOPIC", help="The commits of TOPIC that BASE lacks.")],
    experiment: Annotated[Path, typer.Option("--experiment", readable=False, metavar="FILE", help="What to measure.")],
    tree: Annotated[
        str, typer.Option("--tree", metavar="DIR", help="The repository, if none stands before BASE.")
    ] = "./",
    overrides: options.Overrides = None,
    only: options.Only = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    at_most: Annotated[
        str | None,
        typer.Option(
            "--at-most",
            metavar="BUDGET",
            help="Exit with 1 if a cell exceeds this budget, beside BASE: +5, +1% or <=300.",
        ),
    ] = None,
    form: Annotated[Format, format_options.format_option(SERIES)] = SERIES.default,
    _schema: Annotated[bool, format_options.schema(lambda: PrintedSeries)] = False,
    stored: Annotated[
        bool, typer.Option("--stored", help="Print what the same command has measured; build and measure nothing.")
    ] = False,
    limit: options.Limit = 20,
    fleet: options.Fleet = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure each commit of a patch series.

    Changes are explained by symbol. Commits that do not build or boot are rows with their reason. An interrupted
    series goes on where it was. Exits with 1 if a commit exceeds --at-most, does not build, or a cell of it fails.
    """
    request = ExperimentRequest(experiment, overrides or (), only or (), kconfig, make or ())
    lab = ConsoleLab(offline=offline, verbose=verbose, fleet=fleet)
    try:
        measured = (lab.stored_series if stored else lab.series)(request, span, tree=tree, at_most=at_most)
    except UnmeasuredSeries as error:
        error.hint = "leave out --stored to measure it"
        raise
    form.write("series", SeriesView(measured, limit or None), printing.StandardOutput())
    if form.name == SERIES.default.name:
        forms = ", ".join(SERIES.names[1:])
        print(f"\nother forms, from what is measured now: add --stored --format FORM, of {forms}", file=sys.stderr)
    raise typer.Exit(1 if measured.is_wrong else 0)
