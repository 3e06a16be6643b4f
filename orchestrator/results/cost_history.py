# SPDX-License-Identifier: GPL-2.0-only
"""The history of metrics: the costs of a cell from run to run.

Only some fields of the cell's records are read, and no samples: a thousand records take 10 ms.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from orchestrator.catalog.data import nearest
from orchestrator.errors import LabError, UsageError
from orchestrator.plain_text import shown
from orchestrator.results.cell_filters import ids_named
from orchestrator.results.contract import PER_CALL, PER_RUN, Clock, Interval, Number, Status, Unit
from orchestrator.results.differences import between_boots, between_cells
from orchestrator.results.store import Store, no_run_yet

Quantity = Literal["value", "overhead"]

_FIELDS = ("status", "unit", "clock", "metric", "value", "overhead", "interval", "verdict", "reason")
_COLUMNS = ("run", "started", "digest", "spread")
_PATHS = ", ".join(f"'$.{name}'" for name in _FIELDS)
_RECORD = f"json_extract(record, {_PATHS})"
"""A record's fields as a JSON array; whole records take twice as long to read."""
_SPREAD = "(SELECT max(value) - min(value) FROM samples WHERE samples.run = cells.run AND samples.cell = cells.id)"


@dataclass(frozen=True, order=True)
class Metric:
    """A cell of an experiment, by its id."""

    experiment: str
    cell: str

    def __str__(self) -> str:
        return f"{self.experiment}:{self.cell}"


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A cell's outcome in a run that ``started`` then (ISO 8601, UTC).

    ``value``, ``overhead`` and ``interval`` (of the overhead) are in ``unit``, None without a number. ``digest`` is
    that of the resolved experiment.
    """

    run: str
    started: str
    digest: str
    status: Status
    unit: Unit
    clock: Clock
    metric: str
    value: Number | None = None
    overhead: Number | None = None
    interval: Interval | None = None
    verdict: str | None = None
    reason: str | None = None
    spread: Number | None = None
    """The distance between the smallest sample and the largest."""
    between: float | None = None
    """The largest difference in the run between boots of the same work, for a whole system without an interval; between
    cells of the same calls, where these vary."""

    @property
    def is_of_calls(self) -> bool:
        """Whether it is of calls on the exact clock."""
        return self.clock == "instructions" and self.metric == PER_CALL

    def resolution(self, quantity: Quantity) -> float | None:
        """The largest difference of the figure that may be scatter, in ``unit``; None if unknown.

        The value of calls that vary scatters as their samples do; their overhead is known better.
        """
        if self.is_of_calls and quantity == "value":
            return self.spread and self.spread / 2 + (self.between or 0.0)
        width = None if self.interval is None else (self.interval[1] - self.interval[0]) / 2
        return width if self.is_of_calls else width or self.between


_POINTS = TypeAdapter(list[HistoryPoint])


@dataclass(frozen=True)
class History:
    """A metric's points of one unit, oldest first; at least one.

    ``quantity`` is the figure of interest. ``other_units`` counts the runs with another metric or unit than the newest
    one with a number.
    """

    metric: Metric
    points: Sequence[HistoryPoint]
    quantity: Quantity = "value"
    other_units: int = 0

    @property
    def newest(self) -> HistoryPoint:
        """The newest point with a number, else the newest."""
        return next((point for point in reversed(self.points) if point.value is not None), self.points[-1])

    @property
    def unit(self) -> Unit:
        return self.newest.unit

    @property
    def is_exact(self) -> bool:
        """Whether every difference is real: counted calls and loops that do not scatter, in any run."""
        newest, is_scattering = self.newest, any(self.resolution(point) for point, _ in self.numbers)
        return newest.clock == "instructions" and newest.metric != PER_RUN and not is_scattering

    def resolution(self, point: HistoryPoint) -> float | None:
        """The largest difference of a point's figure that may be scatter."""
        return point.resolution(self.quantity)

    @cached_property
    def numbers(self) -> Sequence[tuple[HistoryPoint, float]]:
        pairs = ((point, self.of(point)) for point in self.points)
        return [(point, value) for point, value in pairs if value is not None]

    def of(self, point: HistoryPoint) -> float | None:
        return point.value if self.quantity == "value" else point.overhead


def metrics(store: Store, experiment: str | None = None, *, with_outcome: bool = False) -> Sequence[Metric]:
    """The metrics of an experiment, or of all, in order; with ``with_outcome`` only those with an outcome."""
    # CROSS JOIN keeps the order of the tables, so that SQLite finds each run's cells by the primary key.
    rows = store.select(
        "SELECT DISTINCT runs.experiment AS experiment, cells.id AS id FROM runs CROSS JOIN cells"
        " ON cells.run = runs.id WHERE (?1 IS NULL OR runs.experiment = ?1) AND (NOT ?2 OR cells.status != 'planned')",
        experiment,
        with_outcome,
    )
    return sorted(Metric(row["experiment"], row["id"]) for row in rows)


def history(store: Store, metric: Metric, quantity: Quantity = "value", *, since: str = "") -> History | None:
    """A metric's history in the runs since ``since`` (ISO 8601, UTC); None without an outcome.

    Raises LabError for a store that another program has changed.
    """
    condition = "cells.id = ?1 AND runs.experiment = ?2 AND runs.started >= ?3"
    histories = _histories(store, quantity, "runs", condition, metric.cell, metric.experiment, since)
    return histories[0] if histories else None


def recent_histories(store: Store, runs: int, quantity: Quantity = "value", *, since: str = "") -> Sequence[History]:
    """The histories of all metrics in the newest ``runs`` runs of the store, in order; ``since`` as above."""
    newest = "(SELECT * FROM run_entries ORDER BY number DESC LIMIT ?1) AS runs"
    return _histories(store, quantity, newest, "runs.started >= ?2", runs, since)


def _histories(store: Store, quantity: Quantity, runs: str, condition: str, *values: object) -> Sequence[History]:
    """The histories of the cells that the conditions ``wanted`` select from the table ``runs``."""
    try:
        rows = store.select(
            "SELECT runs.experiment AS experiment, cells.id AS cell, runs.id AS run, runs.started AS started,"  # noqa: S608 (constants)
            f" runs.digest AS digest, {_SPREAD} AS spread, {_RECORD} AS fields FROM {runs} CROSS JOIN cells"
            f" ON cells.run = runs.id WHERE {condition} AND record NOT NULL ORDER BY runs.number",
            *values,
        )
    except sqlite3.OperationalError as error:
        # The store translates all errors but that of json_extract(), malformed JSON.
        raise _contradiction(store.path, "a run", str(error)) from error
    points: dict[Metric, list[HistoryPoint]] = {}
    for row, point in zip(rows, _points(rows, store.path), strict=True):
        points.setdefault(Metric(row["experiment"], row["cell"]), []).append(point)
    return [_history(store, metric, points, quantity) for metric, points in sorted(points.items())]


def _history(store: Store, metric: Metric, points: Sequence[HistoryPoint], quantity: Quantity) -> History:
    """The history, with the differences between boots or cells where they count."""
    newest = History(metric, points).newest
    alike = [p for p in points if p.value is None or (p.unit, p.metric) == (newest.unit, newest.metric)]
    history = History(metric, alike, quantity, len(points) - len(alike))
    where = store, metric.experiment, metric.cell, alike[0].started
    if newest.is_of_calls and quantity == "value" and any(point.spread for point, _ in history.numbers):
        apart = between_cells(*where)
    elif newest.metric == PER_RUN and newest.clock == "instructions":
        is_known = all(history.resolution(point) for point, _ in history.numbers)
        apart = {} if is_known else between_boots(*where)
    else:
        return history
    return replace(history, points=[replace(point, between=apart.get(point.run)) for point in alike])


def _points(rows: Sequence[sqlite3.Row], store: Path) -> Sequence[HistoryPoint]:
    """The points of these rows, parsed and validated at once, which takes half the time."""
    try:
        fields = json.loads(f"[{','.join(row['fields'] for row in rows)}]")
        return _POINTS.validate_python(
            [
                {**dict(zip(_FIELDS, values, strict=True)), **{name: row[name] for name in _COLUMNS}}
                for row, values in zip(rows, fields, strict=True)
            ]
        )
    except ValidationError as error:
        run = rows[int(error.errors()[0]["loc"][0])]["run"]
        raise _contradiction(store, f"run {run}", str(error)) from error


def _contradiction(store: Path, what: str, why: str) -> LabError:
    return LabError(
        f"the stored results of {what} contradict each other",
        where=str(store),
        hint="Another program has changed the store.",
        detail=why.splitlines()[:20],
    )


_SHOWN = 20


def metrics_named(store: Store, name: str) -> Sequence[Metric]:
    """The metrics of ``EXPERIMENT:CELL``, an id or parts of one, or of ``EXPERIMENT``. Raises UsageError."""
    experiment, colon, cell = name.partition(":")
    known = metrics(store, experiment)
    if not known:
        raise _unknown_experiment(store, name, experiment)
    if not colon:
        return known
    cells = ids_named([metric.cell for metric in known], cell, f"experiment {experiment}")
    return [Metric(experiment, id_) for id_ in cells]


def _unknown_experiment(store: Store, name: str, experiment: str) -> UsageError:
    experiments = list(dict.fromkeys(entry.experiment for entry in store.runs()))
    if not experiments:
        return no_run_yet(store.path)
    meant = next((known for known in experiments if known.startswith(experiment)), nearest(experiment, experiments))
    if meant is None or ":" in name:
        # Look for a cell alone, such as ``kprobe``, in the newest experiment.
        place, cell = meant or experiments[0], name.rpartition(":")[2]
        known = (metric.cell.split("/") for metric in metrics(store, place))
        meant = f"{place}:{cell}" if any(set(cell.split("/")) <= set(parts) for parts in known) else meant
    return UsageError(
        f"this lab has no run of experiment '{experiment}'",
        where=str(store.path),
        detail=["experiments:", *shown(experiments, _SHOWN, "...")],
        hint="METRIC is EXPERIMENT:CELL" + (f"; did you mean '{meant}'?" if meant else ""),
    )
