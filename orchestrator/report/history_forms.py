# SPDX-License-Identifier: GPL-2.0-only
"""Histories for programs: JSON, and CSV with a row for each run."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.report.history_sheets import ExplainedStep
from orchestrator.results.history import History, Point
from orchestrator.results.steps import Steps

COLUMNS = (
    "experiment", "cell", "run", "started", "status", "value", "overhead", "low", "high", "unit", "verdict", "step"
)  # fmt: skip


def history_json(history: History, steps: Steps, explained: Sequence[ExplainedStep]) -> dict[str, Any]:
    """A history with its points and steps, both oldest first; figures are in ``unit``."""
    return {
        "metric": str(history.metric),
        "experiment": history.metric.experiment,
        "cell": history.metric.cell,
        "quantity": history.quantity,
        "what": history.newest.metric,
        "clock": history.newest.clock,
        "unit": history.unit,
        "exact": history.is_exact,
        "how": steps.how,
        "steps": [_step(one) for one in explained],
        "points": [_point(point) for point in history.points],
        "other_units": history.other_units,
    }


def histories_csv(histories: Sequence[tuple[History, Steps]]) -> str:
    """Return RFC 4180 text with a header line; ``step`` is what changed at the run, empty where it is no step."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for history, steps in histories:
        changes = {step.after.run: step.change for step in steps.found}
        for point in history.points:
            low, high = point.interval or (None, None)
            figures = (point.value, point.overhead, low, high)
            names = (history.metric.experiment, history.metric.cell, point.run, point.started, point.status)
            writer.writerow([*names, *figures, point.unit, point.verdict, changes.get(point.run)])
    return file.getvalue()


def _step(one: ExplainedStep) -> dict[str, Any]:
    step = one.step
    return {
        "before": step.before.run,
        "after": step.after.run,
        "started": step.after.started,
        "old": step.old,
        "new": step.new,
        "change": step.change,
        "missing": step.missing,
        "causes": [{**asdict(cause), "sentence": cause.sentence} for cause in one.causes],
    }


def _point(point: Point) -> dict[str, Any]:
    names = ("run", "started", "status", "value", "overhead", "interval", "verdict", "reason", "digest")
    return {name: getattr(point, name) for name in names}
