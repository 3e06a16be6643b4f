# SPDX-License-Identifier: GPL-2.0-only
"""A metric's line in a list: its course, its newest figure, and its last step. It is kept until the metric changes."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from orchestrator.report.figures import figure, signed_figure, unit_name
from orchestrator.report.history_sheets import ExplainedStep, Traced
from orchestrator.report.sparkline import sparkline

_LINE = 24  # characters of the course
_CAUSES = 3


class LastStep(BaseModel):
    """The newest step: the runs on either side, when the later one began, what it costs more, and why."""

    model_config = ConfigDict(frozen=True)

    before: str
    after: str
    started: str
    change: str
    causes: tuple[str, ...]


class MetricSummary(BaseModel):
    """A metric's line; ``course`` is a sparkline. ``fitted`` is False where the library for its steps was missing."""

    model_config = ConfigDict(frozen=True)

    experiment: str
    cell: str
    course: str
    newest: str
    unit: str
    runs: int
    steps: int
    last: LastStep | None = None
    fitted: bool = True


def summary_of(traced: Traced, explained: Sequence[ExplainedStep], *, fitted: bool) -> MetricSummary:
    """The line of a metric; of its steps ``explained`` has the newest ones, newest first."""
    history = traced.history
    values = [history.of(point) for point in history.points]
    return MetricSummary(
        experiment=history.metric.experiment,
        cell=history.metric.cell,
        course=sparkline(values, _LINE),
        newest=history.points[-1].status if values[-1] is None else figure(values[-1], history.unit),
        unit=unit_name(history.unit),
        runs=len(history.points),
        steps=len(traced.steps.found),
        last=_last(explained[0], history.unit) if explained else None,
        fitted=fitted,
    )


def _last(newest: ExplainedStep, unit: str) -> LastStep:
    step, shown = newest.step, [cause.sentence for cause in newest.causes[:_CAUSES]]
    rest = len(newest.causes) - len(shown)
    return LastStep(
        before=step.before.run,
        after=step.after.run,
        started=step.after.started,
        change=signed_figure(step.change, unit),
        causes=(*shown, *([f"and {rest} more"] if rest else [])),
    )
