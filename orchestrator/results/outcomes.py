# SPDX-License-Identifier: GPL-2.0-only
"""Of which runs a metric has outcomes, without reading them: whether its history has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.results.history import Metric
from orchestrator.results.store import Store


@dataclass(frozen=True)
class Outcomes:
    """How many runs have one, the number of the newest of these, and the sum of all their numbers.

    An outcome never changes. So a history that has these three again is the same, as far as runs are not exchanged.
    ``since`` counts the runs from a given one on.
    """

    runs: int
    newest: int
    numbers: int
    since: int


def outcomes(store: Store, since: str) -> Mapping[Metric, Outcomes]:
    """Every metric that has an outcome, in order; ``since`` is the id of a run."""
    rows = store.select(
        "SELECT runs.experiment AS experiment, cells.id AS cell, count(*) AS runs, max(runs.number) AS newest,"
        " sum(runs.number) AS numbers, sum(runs.number >= (SELECT number FROM runs WHERE id = ?)) AS since"
        " FROM cells JOIN runs ON runs.id = cells.run WHERE cells.status != 'planned'"
        " GROUP BY runs.experiment, cells.id ORDER BY runs.experiment, cells.id",
        since,
    )
    return {
        Metric(row["experiment"], row["cell"]): Outcomes(row["runs"], row["newest"], row["numbers"], row["since"])
        for row in rows
    }
