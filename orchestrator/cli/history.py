# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator history``: what a cell has cost from run to run, and what changed where it began to cost more."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli import options
from orchestrator.cli.options import expected_failures, no_run_yet, opened_store
from orchestrator.errors import HostError, UsageError
from orchestrator.program import PROGRAM
from orchestrator.report import history_sheets as sheets
from orchestrator.report.chart import ASCII, BLOCKS
from orchestrator.report.text import print_sheets
from orchestrator.results.history import Quantity, metrics_named, recent_histories
from orchestrator.results.history import history as history_of
from orchestrator.results.history_steps import Origins, Steps, causes, steps_of
from orchestrator.results.store import Store

_RECENT = 100
"""Runs that are looked at for what changed lately."""


Form = StrEnum("Form", "TABLE JSON CSV")


@expected_failures
def history(
    metric: Annotated[
        str | None,
        typer.Argument(
            metavar="METRIC",
            help="EXPERIMENT:CELL, where CELL is a cell's id or parts of it; default: what changed lately.",
            autocompletion=options.metrics,
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="List the N newest steps, and N lines of runs; 0: all.")
    ] = 20,
    since: Annotated[
        datetime | None, typer.Option(metavar="DATE", help="Only runs from then on: 2026-11-01.", formats=["%Y-%m-%d"])
    ] = None,
    overhead: Annotated[bool, typer.Option("--overhead", help="Of the overhead instead of the value.")] = False,
    form: Annotated[
        Form, typer.Option("--format", help="table: for people; json: for programs, whole; csv: a row for each run.")
    ] = Form.TABLE,
) -> None:
    """Print what a cell has cost from run to run.

    Each step, and what the runs on either side were not made with alike. METRIC may name several cells, or an
    experiment: then each has a line.
    """
    quantity: Quantity = "overhead" if overhead else "value"
    with opened_store() as store:
        if store is None:
            raise no_run_yet()
        if metric is None:
            _print(store, _changed_lately(store, quantity, since), form, f"Changed in the newest {_RECENT} runs")
            return
        found = _named(store, metric, quantity, since)
        if len(found) == 1 and form is Form.TABLE:
            newest = _explained(store, found[0], limit or None)[::-1]
            console, characters = _console()
            print_sheets(sheets.history_sheets(found[0], newest, limit or None, characters), console)
        else:
            _print(store, found, form, metric)


def _named(store: Store, name: str, quantity: Quantity, since: datetime | None) -> Sequence[Steps]:
    begun = _moment(since)
    read = (history_of(store, metric, quantity, since=begun) for metric in metrics_named(store, name))
    histories = [one for one in read if one is not None]
    if not histories:
        begin = "" if since is None else f" since {since:%Y-%m-%d}"
        hint = "go on with the run: --resume" if since is None else "begin earlier, or leave out --since"
        raise UsageError(f"no run{begin} has an outcome of '{name}'", hint=hint)
    return [steps_of(one) for one in histories]


def _changed_lately(store: Store, quantity: Quantity, since: datetime | None) -> Sequence[Steps]:
    """Those with a step, the newest step first; a history that needs a missing library is left out, with a word."""
    found: list[Steps] = []
    refused: HostError | None = None
    for one in recent_histories(store, _RECENT, quantity, since=_moment(since)):
        try:
            found.append(steps_of(one))
        except HostError as error:
            refused = error
    if refused is not None:
        print(f"warning: {refused}", file=sys.stderr)
    with_step = [one for one in found if one.found]
    return sorted(with_step, key=lambda one: one.found[-1].after.started, reverse=True)


def _explained(store: Store, steps: Steps, limit: int | None) -> Sequence[sheets.ExplainedStep]:
    found, metric, origins = steps.found, steps.history.metric, Origins(store)
    return [sheets.ExplainedStep(step, causes(origins, step, metric)) for step in (found[-limit:] if limit else found)]


def _print(store: Store, histories: Sequence[Steps], form: Form, title: str) -> None:
    if form is Form.JSON:
        listed = [sheets.history_json(one, _explained(store, one, None)) for one in histories]
        typer.echo(json.dumps({"histories": listed}, indent=1))
    elif form is Form.CSV:
        typer.echo(sheets.histories_csv(histories), nl=False)
    elif not histories:
        typer.echo(f"Nothing has changed in the newest {_RECENT} runs.")
    else:
        console, characters = _console()
        example = sheets.in_one_line(f"{PROGRAM} history {histories[0].history.metric}")
        sentences = [f"The first one with its steps, what changed at each, and its runs: {example}"]
        print_sheets([sheets.overview_sheet(title, histories, sentences, characters)], console)


def _console() -> tuple[Console, str]:
    console = Console()
    return console, ASCII if console.options.ascii_only else BLOCKS


def _moment(since: datetime | None) -> str:
    """The day's beginning here, as the store has times; empty without one."""
    return "" if since is None else since.astimezone(UTC).isoformat()
