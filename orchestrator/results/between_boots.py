# SPDX-License-Identifier: GPL-2.0-only
"""How far apart boots of the same work are, run by run: how exact a whole system's baseline is.

Other cells are compared with the baseline and its A/A boots, and have an interval. The baseline itself has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.catalog.probes import BASELINE
from orchestrator.results.contract import PER_RUN
from orchestrator.results.store import Store

_FAMILY = ("table", "cpu", "smp", "benchmark")
"""What cells have in common that are compared with one baseline."""


def between_boots(store: Store, experiment: str, cell: str, since: str) -> Mapping[str, float]:
    """By run, from ``since`` on, the largest difference that boots of the cell's work have without a cause.

    In the cells' unit: half of the widest interval of the cells that are compared with the same baseline, or the
    largest overhead of a further boot of the cell's own kernel without a probe. Runs with neither are not there.
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
    found = {row["run"]: max(row["widest"] or 0.0, row["apart"] or 0.0) for row in rows}
    return {run: apart for run, apart in found.items() if apart}
