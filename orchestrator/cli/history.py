# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator history``: the cost of cells from run to run, and the causes of its steps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli import options
from orchestrator.errors import HostError, UsageError
from orchestrator.paths import lab_dir
from orchestrator.program import PROGRAM
from orchestrator.report import history_sheets as sheets
from orchestrator.report.printed_history import PrintedHistories, PrintedHistory
from orchestrator.report.text import print_sheets
from orchestrator.results.history import Quantity, metrics_named, recent_histories
from orchestrator.results.history import history as history_of
from orchestrator.results.history_steps import RunProvenances, Steps, causes, steps_of
from orchestrator.results.store import Store, no_run_yet

_RECENT = 100
"""Runs in which recent changes are looked for."""


Form = StrEnum("Form", "TABLE JSON CSV")


def history(
    metric: Annotated[
        str | None,
        typer.Argument(
            metavar="METRIC",
            help="EXPERIMENT:CELL, where CELL is a cell's id or parts of it; default: recent changes.",
            autocompletion=options.metrics,
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="List the N newest steps and N lines of runs; 0: all.")
    ] = 20,
    since: Annotated[
        datetime | None, typer.Option(metavar="DATE", help="Only runs since a day: 2026-11-01.", formats=["%Y-%m-%d"])
    ] = None,
    overhead: Annotated[bool, typer.Option("--overhead", help="Show the overhead instead of the value.")] = False,
    form: Annotated[
        Form, typer.Option("--format", help="table: for people; json: for programs, complete; csv: a row per run.")
    ] = Form.TABLE,
    _schema: Annotated[bool, options.schema(lambda: PrintedHistories)] = False,
) -> None:
    """Print the cost of a cell from run to run.

    Lists each step, with the differences between the runs on either side. If METRIC names several cells or an
    experiment, prints a line per cell.
    """
    quantity: Quantity = "overhead" if overhead else "value"
    with options.opened_store() as store:
        if store is None:
            raise no_run_yet(lab_dir())
        if metric is None:
            _print(store, _recently_changed(store, quantity, since), form, f"Changed in the newest {_RECENT} runs")
            return
        steps_of_each = _matching(store, metric, quantity, since)
        if len(steps_of_each) == 1 and form is Form.TABLE:
            newest = _explained(store, steps_of_each[0], limit or None)[::-1]
            print_sheets(sheets.history_sheets(steps_of_each[0], newest, limit or None), Console())
        else:
            _print(store, steps_of_each, form, metric)


def _matching(store: Store, name: str, quantity: Quantity, since: datetime | None) -> Sequence[Steps]:
    begun = _moment(since)
    read = (history_of(store, metric, quantity, since=begun) for metric in metrics_named(store, name))
    histories = [cell_history for cell_history in read if cell_history is not None]
    if not histories:
        begin = "" if since is None else f" since {since:%Y-%m-%d}"
        hint = "resume the run: --resume" if since is None else "name an earlier day, or leave out --since"
        raise UsageError(f"no run{begin} has an outcome of '{name}'", hint=hint)
    return [steps_of(cell_history) for cell_history in histories]


def _recently_changed(store: Store, quantity: Quantity, since: datetime | None) -> Sequence[Steps]:
    """The histories with a step, the newest step first; warns of those that need a missing library."""
    steps_of_each: list[Steps] = []
    refused: HostError | None = None
    for cell_history in recent_histories(store, _RECENT, quantity, since=_moment(since)):
        try:
            steps_of_each.append(steps_of(cell_history))
        except HostError as error:
            refused = error
    if refused is not None:
        print(f"warning: {refused}", file=sys.stderr)
    with_step = [steps for steps in steps_of_each if steps.ordered]
    return sorted(with_step, key=lambda steps: steps.ordered[-1].after.started, reverse=True)


def _explained(store: Store, steps: Steps, limit: int | None) -> Sequence[sheets.ExplainedStep]:
    history_steps, metric, provenances = steps.ordered, steps.history.metric, RunProvenances(store)
    return [
        sheets.ExplainedStep(step, causes(provenances, step, metric))
        for step in (history_steps[-limit:] if limit else history_steps)
    ]


def _print(store: Store, histories: Sequence[Steps], form: Form, title: str) -> None:
    if form is Form.JSON:
        listed = [PrintedHistory.of(steps, _explained(store, steps, None)) for steps in histories]
        typer.echo(PrintedHistories(histories=listed).json_text(indent=1))
    elif form is Form.CSV:
        typer.echo(sheets.histories_csv(histories), nl=False)
    elif not histories:
        typer.echo(f"No cell has changed in the newest {_RECENT} runs.")
    else:
        example = sheets.in_one_line(f"{PROGRAM} history {histories[0].history.metric}")
        sentences = [f"For the steps, causes and runs of the first one: {example}"]
        print_sheets([sheets.overview_sheet(title, histories, sentences)], Console())


def _moment(since: datetime | None) -> str:
    """The beginning of the local day as a time of the store; empty for None."""
    return "" if since is None else since.astimezone(UTC).isoformat()
