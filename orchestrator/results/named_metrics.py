# SPDX-License-Identifier: GPL-2.0-only
"""The metrics that a person names: ``EXPERIMENT:CELL``, where CELL is an id or parts of one, or ``EXPERIMENT``."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.catalog.spelling import nearest
from orchestrator.errors import UsageError
from orchestrator.program import PROGRAM
from orchestrator.results.chosen_cell import ids_named
from orchestrator.results.history import Metric, metrics
from orchestrator.results.store import Store

_SHOWN = 20


def metrics_named(store: Store, name: str) -> Sequence[Metric]:
    """The metrics that ``name`` names, all of an experiment where it names no cell. Raises UsageError for none."""
    experiment, colon, cell = name.partition(":")
    known = metrics(store, experiment)
    if not known:
        raise _no_such(store, name, experiment)
    if not colon:
        return known
    found = ids_named([metric.cell for metric in known], cell, f"experiment {experiment}")
    return [Metric(experiment, one) for one in found]


def _no_such(store: Store, name: str, experiment: str) -> UsageError:
    experiments = list(dict.fromkeys(entry.experiment for entry in store.runs()))
    if not experiments:
        return UsageError("there is no run yet", where=str(store.path), hint=f"Make one: {PROGRAM} run CONFIG")
    guess = next((one for one in experiments if one.startswith(experiment)), nearest(experiment, experiments))
    example = _meant(store, name, guess, experiments[0])
    question = f"; did you mean '{example}'?" if example else ""
    more = ["..."] if len(experiments) > _SHOWN else []
    return UsageError(
        f"no run of this lab is of the experiment '{experiment}'",
        where=str(store.path),
        detail=["experiments:", *experiments[:_SHOWN], *more],
        hint=f"METRIC is EXPERIMENT:CELL{question}",
    )


def _meant(store: Store, name: str, guess: str | None, newest: str) -> str | None:
    """A metric that is there; a cell alone, such as ``kprobe``, is looked for in the newest experiment."""
    if guess is not None and ":" not in name:
        return guess
    experiment, cell = guess or newest, name.rpartition(":")[2]
    parts = set(cell.split("/"))
    known = [metric.cell for metric in metrics(store, experiment)]
    return f"{experiment}:{cell}" if any(parts <= set(one.split("/")) for one in known) else guess
