# SPDX-License-Identifier: GPL-2.0-only
"""The chart of a history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from orchestrator.report.chart import HistoryChart, HistoryPoint, Level
from orchestrator.report.figures import signed_figure
from orchestrator.results.history import History, Point
from orchestrator.results.statistics import median
from orchestrator.results.steps import Steps


def history_chart(history: History, steps: Steps) -> HistoryChart:
    """Return the course of a history: its runs, the level between two steps, and each step with its change.

    Intervals are drawn around what they belong to; those of counts are a point, and are not.
    """
    newest = history.newest
    what = newest.metric if history.quantity == "value" else f"overhead, {newest.metric}"
    return HistoryChart(
        title=history.metric.cell,
        subtitle=f"{history.metric.experiment}: {what}",
        upwards=newest.unit,
        points=[HistoryPoint(_when(point), history.of(point), _bounds(history, point)) for point in history.points],
        levels=_levels(history, steps),
    )


def _levels(history: History, steps: Steps) -> Sequence[Level]:
    numbers = history.numbers
    places = {point.run: at for at, (point, _) in enumerate(numbers)}
    ends = [0, *(places[step.after.run] for step in steps.found), len(numbers)]
    texts = ["", *(signed_figure(step.change, history.unit) for step in steps.found)]
    found = []
    for (start, end), text in zip(pairwise(ends), texts, strict=True):
        part = numbers[start:end]
        if part:
            # Up to the step that ends it: between two runs nothing is known, and a gap would look like a lack.
            last = numbers[end][0] if end < len(numbers) else part[-1][0]
            found.append(Level(_when(part[0][0]), _when(last), median([value for _, value in part]), text))
    return found


def _bounds(history: History, point: Point) -> tuple[float, float] | None:
    """The interval, which is of the overhead, around the figure."""
    value = history.of(point)
    if value is None or point.overhead is None or point.interval is None or point.interval[0] == point.interval[1]:
        return None
    moved = value - point.overhead
    return point.interval[0] + moved, point.interval[1] + moved


def _when(point: Point) -> datetime:
    return datetime.fromisoformat(point.started)
