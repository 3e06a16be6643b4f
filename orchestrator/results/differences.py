# SPDX-License-Identifier: GPL-2.0-only
"""How far equal boots, and cells of equal calls, differ from each other in stored runs."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.catalog.probes import BASELINE
from orchestrator.results.contract import PER_RUN
from orchestrator.results.same_calls import PATHS as SAME_CALLS
from orchestrator.results.store import Store

_FAMILY = ("table", "cpu", "smp", "benchmark")
"""The fields that cells compared with the same baseline have in common."""


def between_boots(store: Store, experiment: str, cell: str, since: str) -> Mapping[str, float]:
    """The largest difference between boots of the cell's work by run, since ``since``, in the cells' unit.

    It is half of the widest interval of the cells compared with the same baseline, or the largest overhead of an A/A
    boot without a probe. Runs with neither are absent. The baseline itself has no interval.
    """
    same = " AND ".join(
        f"json_extract(other.record, '$.{name}') IS json_extract(own.record, '$.{name}')" for name in _FAMILY
    )
    width = "(json_extract(other.record, '$.interval[1]') - json_extract(other.record, '$.interval[0]')) / 2"
    further_boot = (
        "CASE WHEN json_extract(other.record, '$.probe') = ?4 AND json_extract(own.record, '$.probe') = ?4"
        " AND json_extract(other.record, '$.kernel') = json_extract(own.record, '$.kernel')"
        " THEN abs(json_extract(other.record, '$.overhead')) END"
    )
    rows = store.select(
        f"SELECT runs.id AS run, max({width}) AS widest, max({further_boot}) AS apart"  # noqa: S608 (constants)
        " FROM runs CROSS JOIN cells AS own ON own.run = runs.id AND own.id = ?2"
        " CROSS JOIN cells AS other ON other.run = runs.id"
        " WHERE runs.experiment = ?1 AND runs.started >= ?3 AND own.status = 'ok' AND other.status = 'ok'"
        f" AND json_extract(other.record, '$.metric') = ?5 AND {same} GROUP BY runs.id",
        experiment,
        cell,
        since,
        BASELINE,
        PER_RUN,
    )
    widest = {row["run"]: max(row["widest"] or 0.0, row["apart"] or 0.0) for row in rows}
    return {run: apart for run, apart in widest.items() if apart}


def between_cells(store: Store, experiment: str, cell: str, since: str) -> Mapping[str, float]:
    """By how much the cost of the cell's calls differs from cell to cell, without their probes, by run since ``since``.

    In the cells' unit. It is what ``comparison.verdicts.between_cells`` computes of whole records.
    """
    same = " AND ".join(
        f"json_extract(other.record, '$.{name}') IS json_extract(own.record, '$.{name}')" for name in SAME_CALLS
    )
    plain = "json_extract(other.record, '$.value') - json_extract(other.record, '$.overhead')"
    rows = store.select(
        f"SELECT runs.id AS run, max({plain}) - min({plain}) AS apart"  # noqa: S608 (constants)
        " FROM runs CROSS JOIN cells AS own ON own.run = runs.id AND own.id = ?2"
        " CROSS JOIN cells AS other ON other.run = runs.id"
        " WHERE runs.experiment = ?1 AND runs.started >= ?3 AND own.status = 'ok' AND other.status = 'ok'"
        f" AND {same} GROUP BY runs.id",
        experiment,
        cell,
        since,
    )
    return {row["run"]: row["apart"] for row in rows if row["apart"]}
