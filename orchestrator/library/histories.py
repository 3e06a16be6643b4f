# SPDX-License-Identifier: GPL-2.0-only
"""The histories of cells that are asked for: those of a name, or those that have changed lately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from orchestrator.errors import HostError, UsageError
from orchestrator.report.history_sheets import ExplainedStep
from orchestrator.results.cost_history import Quantity, history, metrics_named, recent_histories
from orchestrator.results.history_steps import RunProvenances, Steps, causes, steps_of
from orchestrator.results.store import Store

RECENT_RUNS = 100
"""The newest runs in which changes are looked for."""


def named_histories(store: Store, name: str, quantity: Quantity, since: datetime | None = None) -> Sequence[Steps]:
    """The histories of a metric ``EXPERIMENT:CELL``, or of all that the name has, in the runs since a moment.

    Raises UsageError if there is none, HostError without the library that finds steps.
    """
    begun = _moment(since)
    read = (history(store, metric, quantity, since=begun) for metric in metrics_named(store, name))
    histories = [cell_history for cell_history in read if cell_history is not None]
    if not histories:
        begin = "" if since is None else f" since {since:%Y-%m-%d}"
        hint = "resume the run: --resume" if since is None else "name an earlier day, or leave out --since"
        raise UsageError(f"no run{begin} has an outcome of '{name}'", hint=hint)
    return [steps_of(cell_history) for cell_history in histories]


def changed_histories(
    store: Store, quantity: Quantity, since: datetime | None, warn: Callable[[str], None]
) -> Sequence[Steps]:
    """The histories with a step in the ``RECENT_RUNS`` newest runs, the newest step first.

    ``warn`` is told of those that need a missing library.
    """
    steps_of_each: list[Steps] = []
    refused: HostError | None = None
    for cell_history in recent_histories(store, RECENT_RUNS, quantity, since=_moment(since)):
        try:
            steps_of_each.append(steps_of(cell_history))
        except HostError as error:
            refused = error
    if refused is not None:
        warn(f"warning: {refused}")
    with_step = [steps for steps in steps_of_each if steps.ordered]
    return sorted(with_step, key=lambda steps: steps.ordered[-1].after.started, reverse=True)


def explained_steps(store: Store, steps: Steps, limit: int | None = None) -> Sequence[ExplainedStep]:
    """The newest ``limit`` steps of a history, the oldest first, with what differs between the runs of each."""
    history_steps, metric, provenances = steps.ordered, steps.history.metric, RunProvenances(store)
    return [
        ExplainedStep(step, causes(provenances, step, metric))
        for step in (history_steps[-limit:] if limit else history_steps)
    ]


def _moment(since: datetime | None) -> str:
    """The beginning of the local day as a time of the store; empty for None."""
    return "" if since is None else since.astimezone(UTC).isoformat()
