# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator history``: the cost of cells from run to run, and the causes of its steps."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from orchestrator.cli import completion, format_options, printing
from orchestrator.library.formats import Format, Formats
from orchestrator.library.histories import RECENT_RUNS, changed_histories, explained_steps, named_histories
from orchestrator.paths import lab_dir
from orchestrator.report.history_forms import HistoriesView
from orchestrator.report.history_json import PrintedHistories
from orchestrator.results.cost_history import Quantity
from orchestrator.results.runs import opened_store
from orchestrator.results.store import no_run_yet

HISTORIES = Formats("histories")


def history(
    metric: Annotated[
        str | None,
        typer.Argument(
            metavar="METRIC",
            help="EXPERIMENT:CELL, where CELL is a cell's id or parts of it; default: recent changes.",
            autocompletion=completion.metrics,
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="List the N newest steps and N lines of runs; 0: all.")
    ] = 20,
    since: Annotated[
        datetime | None, typer.Option(metavar="DATE", help="Only runs since a day: 2026-11-01.", formats=["%Y-%m-%d"])
    ] = None,
    overhead: Annotated[bool, typer.Option("--overhead", help="Show the overhead instead of the value.")] = False,
    form: Annotated[Format, format_options.format_option(HISTORIES)] = HISTORIES.default,
    _schema: Annotated[bool, format_options.schema(lambda: PrintedHistories)] = False,
) -> None:
    """Print the cost of a cell from run to run.

    Lists each step, with the differences between the runs on either side. If METRIC names several cells or an
    experiment, prints a line per cell.
    """
    quantity: Quantity = "overhead" if overhead else "value"
    with opened_store() as store:
        if store is None:
            raise no_run_yet(lab_dir())
        if metric is None:
            title = f"Changed in the newest {RECENT_RUNS} runs"
            histories = changed_histories(store, quantity, since, printing.say)
        else:
            title, histories = metric, named_histories(store, metric, quantity, since)
        is_alone = metric is not None and len(histories) == 1
        explained = partial(explained_steps, store)
        printed = HistoriesView(title, histories, explained, RECENT_RUNS, alone=is_alone, limit=limit or None)
        form.write("histories", printed, printing.StandardOutput())
