# SPDX-License-Identifier: GPL-2.0-only
"""Runs in Bencher Metric Format."""

from __future__ import annotations

import json

from orchestrator.errors import UsageError
from orchestrator.program import PROGRAM
from orchestrator.report.output import Output
from orchestrator.report.run_view import RunView
from orchestrator.results.contract import RunRecord
from orchestrator.results.statistics import Interval, median_interval


def render_bencher(run: RunRecord) -> str:
    """The figures of ``run`` in Bencher Metric Format (https://bencher.dev/bmf.json), cells by their ids.

    Cells without a number are left out. Raises UsageError for a run without any.
    """
    measures: dict[str, dict[str, dict[str, float]]] = {}
    for cell in run.cells:
        if cell.value is None:
            continue
        interval = median_interval(cell.samples) if cell.clock == "wall" and cell.samples else None
        measures[cell.id] = {"nanoseconds" if cell.unit == "ns" else cell.unit: _metric(cell.value, interval)}
        if cell.overhead is not None:
            measures[cell.id]["overhead"] = _metric(cell.overhead, cell.interval)
    if not measures:
        raise UsageError(f"no cell of run {run.run} has a number", hint=f"see why: {PROGRAM} report {run.run}")
    return json.dumps(measures, indent=2) + "\n"


def _metric(value: float, interval: Interval | None) -> dict[str, float]:
    bounds = {} if interval is None else {"lower_value": interval[0], "upper_value": interval[1]}
    return {"value": value, **bounds}


def write(printed: RunView, output: Output) -> None:
    """Write Bencher Metric Format."""
    output.text(render_bencher(printed.run.record))
