# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator history``: the cost of cells from run to run, and the causes of its steps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from orchestrator.cli import options
from orchestrator.errors import HostError, UsageError
from orchestrator.library.formats import Format, Formats
from orchestrator.paths import lab_dir
from orchestrator.report.history_forms import HistoriesView
from orchestrator.report.history_json import PrintedHistories
from orchestrator.report.history_sheets import ExplainedStep
from orchestrator.results.history import Quantity, metrics_named, recent_histories
from orchestrator.results.history import history as history_of
from orchestrator.results.history_steps import RunProvenances, Steps, causes, steps_of
from orchestrator.results.store import Store, no_run_yet

_RECENT = 100
"""Runs in which recent changes are looked for."""


HISTORIES = Formats("histories")


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
    form: Annotated[Format, options.format_option(HISTORIES)] = HISTORIES.default,
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
            title, histories = f"Changed in the newest {_RECENT} runs", _recently_changed(store, quantity, since)
        else:
            title, histories = metric, _matching(store, metric, quantity, since)
        is_alone = metric is not None and len(histories) == 1
        explained = partial(_explained, store)
        printed = HistoriesView(title, histories, explained, _RECENT, alone=is_alone, limit=limit or None)
        form.write("histories", printed, options.StandardOutput())


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


def _explained(store: Store, steps: Steps, limit: int | None) -> Sequence[ExplainedStep]:
    history_steps, metric, provenances = steps.ordered, steps.history.metric, RunProvenances(store)
    return [
        ExplainedStep(step, causes(provenances, step, metric))
        for step in (history_steps[-limit:] if limit else history_steps)
    ]


def _moment(since: datetime | None) -> str:
    """The beginning of the local day as a time of the store; empty for None."""
    return "" if since is None else since.astimezone(UTC).isoformat()
