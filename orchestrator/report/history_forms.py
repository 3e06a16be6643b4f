# SPDX-License-Identifier: GPL-2.0-only
"""Histories in the formats of ``history``: what each of them writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.program import PROGRAM
from orchestrator.report.history_json import PrintedHistories, PrintedHistory
from orchestrator.report.history_sheets import (
    ExplainedStep,
    histories_csv,
    history_sheets,
    in_one_line,
    overview_sheet,
)
from orchestrator.report.output import Output
from orchestrator.report.text import print_sheets
from orchestrator.results.history_steps import Steps


@dataclass(frozen=True)
class HistoriesView:
    """Histories to print in an overview of this ``title``; ``explained`` gives a history's steps with their causes."""

    title: str
    histories: Sequence[Steps]
    explained: Callable[[Steps, int | None], Sequence[ExplainedStep]]
    """At most so many of the newest steps, the oldest first."""
    recent: int
    """The number of the newest runs that an overview without a history is of."""
    alone: bool = False
    """Whether the one history is printed with its steps, which an overview only counts."""
    limit: int | None = None


def write_table(view: HistoriesView, output: Output) -> None:
    """Write tables in the console's width."""
    if view.alone:
        (steps,) = view.histories
        newest = view.explained(steps, view.limit)[::-1]
        print_sheets(history_sheets(steps, newest, view.limit), output.console)
    elif not view.histories:
        output.text(f"No cell has changed in the newest {view.recent} runs.\n")
    else:
        example = in_one_line(f"{PROGRAM} history {view.histories[0].history.metric}")
        sentences = [f"For the steps, causes and runs of the first one: {example}"]
        print_sheets([overview_sheet(view.title, view.histories, sentences)], output.console)


def write_csv(view: HistoriesView, output: Output) -> None:
    """Write CSV."""
    output.text(histories_csv(view.histories))


def write_json(view: HistoriesView, output: Output) -> None:
    """Write JSON for programs."""
    listed = [PrintedHistory.of(steps, view.explained(steps, None)) for steps in view.histories]
    output.text(f"{PrintedHistories(histories=listed).json_text(indent=1)}\n")
