# SPDX-License-Identifier: GPL-2.0-only
"""What ``history --format json`` prints (docs/history.md), made from histories and their steps."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.report.history_sheets import ExplainedStep
from orchestrator.results.contract import Clock, Status, Unit
from orchestrator.results.cost_history import HistoryPoint, Quantity
from orchestrator.results.history_steps import Steps
from orchestrator.results.printed_json import Printed
from orchestrator.results.recorded_provenance import ProvenanceDifference


class Cause(Printed):
    """A difference in the provenance of the runs on both sides of a step."""

    what: str
    """What differs, such as QEMU or a module."""
    before: str
    """Its version before; empty with ``after`` if only the content differs."""
    after: str
    """Its version after."""
    detail: Sequence[str]
    """Files or packages whose content differs, if known."""
    sentence: str
    """All of it, for people."""

    @classmethod
    def of(cls, cause: ProvenanceDifference) -> Cause:
        return cls(
            what=cause.what, before=cause.before, after=cause.after, detail=cause.detail, sentence=cause.sentence
        )


class PrintedStep(Printed):
    """A change of the level between two runs."""

    before: str
    """The last run before it."""
    after: str
    """The first run after it."""
    started: str
    """When that run began (ISO 8601, UTC)."""
    old: float
    """The level before."""
    new: float
    """The level after."""
    change: float
    """The level after less that before."""
    missing: int
    """Runs between the two without a number."""
    causes: Sequence[Cause]
    """What differs between the two runs."""

    @classmethod
    def of(cls, explained: ExplainedStep) -> PrintedStep:
        step = explained.step
        return cls(
            before=step.before.run,
            after=step.after.run,
            started=step.after.started,
            old=step.old,
            new=step.new,
            change=step.change,
            missing=step.missing,
            causes=[Cause.of(cause) for cause in explained.causes],
        )


class PrintedPoint(Printed):
    """The cell's outcome in a run."""

    run: str
    """The run's id."""
    started: str
    """When it began (ISO 8601, UTC)."""
    status: Status
    """The cell's status."""
    value: float | None
    """Its value; None without a number."""
    overhead: float | None
    """Its overhead."""
    interval: tuple[float, float] | None
    """The interval of the overhead."""
    verdict: str | None
    """``none`` if the overhead has no verdict."""
    reason: str | None
    """Why there is no number."""
    digest: str
    """The digest of the run's experiment."""

    @classmethod
    def of(cls, point: HistoryPoint) -> PrintedPoint:
        return cls(**{name: getattr(point, name) for name in cls.model_fields})


class PrintedHistory(Printed):
    """A cell's cost from run to run; figures are in ``unit``."""

    metric: str
    """``EXPERIMENT:CELL``."""
    experiment: str
    """The experiment's name."""
    cell: str
    """The cell's id."""
    quantity: Quantity
    """Whether value or overhead is looked at."""
    what: str
    """The metric of a sample."""
    clock: Clock
    """The clock."""
    unit: Unit
    """The unit."""
    exact: bool
    """Whether each change is a step."""
    how: str
    """How steps are found, as a sentence."""
    steps: Sequence[PrintedStep]
    """The steps, oldest first."""
    points: Sequence[PrintedPoint]
    """The runs, oldest first."""
    other_units: int
    """Runs that measured in another unit, which are left out."""

    @classmethod
    def of(cls, steps: Steps, explained: Sequence[ExplainedStep]) -> PrintedHistory:
        history = steps.history
        return cls(
            metric=str(history.metric),
            experiment=history.metric.experiment,
            cell=history.metric.cell,
            quantity=history.quantity,
            what=history.newest.metric,
            clock=history.newest.clock,
            unit=history.unit,
            exact=history.is_exact,
            how=steps.how,
            steps=[PrintedStep.of(step) for step in explained],
            points=[PrintedPoint.of(point) for point in history.points],
            other_units=history.other_units,
        )


class PrintedHistories(Printed):
    """The histories of one or several cells."""

    histories: Sequence[PrintedHistory]
    """One for each cell; without METRIC the newest step first."""
