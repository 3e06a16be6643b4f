# SPDX-License-Identifier: GPL-2.0-only
"""A metric as a page: the chart of its history, each step with its causes, and its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.counted import counted
from orchestrator.program import PROGRAM
from orchestrator.report.figures import NOTHING, figure, signed_figure
from orchestrator.report.history_chart import history_chart
from orchestrator.report.history_forms import histories_csv
from orchestrator.report.history_sheets import ExplainedStep, Traced
from orchestrator.report.html.attachments import Page
from orchestrator.report.html.frame import Link, render
from orchestrator.report.html.history_picture import history_picture
from orchestrator.report.site.addresses import Addresses
from orchestrator.report.site.moments import day, days, minute
from orchestrator.results.history import History, Point

MOST_STEPS = 50
"""Steps of a page, the newest; the chart has all."""
_MOST_RUNS = 100
_MOST_CAUSES = 12
_LONGEST_REMARK = 160


@dataclass(frozen=True)
class _RunLink:
    """A run, and the address of its page where it has one."""

    run: str
    address: str | None


@dataclass(frozen=True)
class _StepPart:
    """A step in words, and the runs on either side."""

    id: str
    title: str
    change: str
    old: str
    new: str
    before: _RunLink
    after: _RunLink
    missing: int
    causes: Sequence[str]
    command: str


@dataclass(frozen=True)
class _RunRow:
    """A line of the table of runs; ``step`` is the one that begins with it."""

    link: _RunLink
    began: str
    status: str
    value: str
    overhead: str
    interval: str
    step: _StepPart | None
    remark: str


def metric_page(traced: Traced, explained: Sequence[ExplainedStep], lacking: str, addresses: Addresses) -> Page:
    """The page of a metric; of its steps ``explained`` has the newest ones, newest first.

    ``lacking`` says what is not installed that would find steps. All points are in a CSV file beside the page.
    """
    history, steps = traced.history, traced.steps
    metric = history.metric
    parts = [_step(number, one, history.unit, addresses) for number, one in enumerate(explained, 1)]
    begins = {part.after.run: part for part in parts}
    table = f"{PurePosixPath(addresses.page).stem}.csv"
    text = render(
        "metric.html.j2",
        str(metric),
        [
            Link(addresses.index, "Overview"),
            Link(addresses.all_runs, "All runs"),
            Link(addresses.experiment(metric.experiment), f"Experiment {metric.experiment}"),
            Link("#course", "Course"),
            Link("#steps", "Steps"),
            Link("#runs", "Runs"),
        ],
        summary=list(_sentences(history)),
        picture=history_picture(history_chart(history, steps), "chart"),
        how=steps.how,
        lacking=lacking,
        steps=parts,
        earlier_steps=len(steps.found) - len(parts),
        rows=[
            _row(point, history, begins.get(point.run), addresses) for point in history.points[: -_MOST_RUNS - 1 : -1]
        ],
        runs=len(history.points),
        unit=history.unit,
        table=table,
    )
    return Page(text, "", {table: histories_csv([(history, steps)]).encode()})


def _sentences(history: History) -> Iterator[str]:
    newest, first, last = history.newest, history.points[0], history.points[-1]
    count = len(history.points)
    yield (
        f"{newest.metric[:1].upper()}{newest.metric[1:]} in {newest.unit}: {counted(count, 'run')} "
        f"{days(first.started, last.started)}."
    )
    without = count - len(history.numbers)
    if without:
        yield f"{counted(without, 'run')} without a number."
    if history.other_units:
        yield f"{counted(history.other_units, 'run')} measured something else and are left out."


def _step(number: int, one: ExplainedStep, unit: str, addresses: Addresses) -> _StepPart:
    step = one.step
    change = signed_figure(step.change, unit)
    share = f" ({100 * step.change / step.old:+.1f} %)" if step.old > 0 else ""
    causes = [cause.sentence for cause in one.causes[:_MOST_CAUSES]]
    rest = len(one.causes) - len(causes)
    return _StepPart(
        id=f"step-{number}",
        title=f"{day(step.after.started)}: {change} {unit}{share}",
        change=change,
        old=figure(step.old, unit),
        new=figure(step.new, unit),
        before=_RunLink(step.before.run, addresses.run(step.before.run)),
        after=_RunLink(step.after.run, addresses.run(step.after.run)),
        missing=step.missing,
        causes=[*causes, *([f"and {rest} more"] if rest else [])],
        command=f"{PROGRAM} compare {step.before.run} {step.after.run}",
    )


def _row(point: Point, history: History, step: _StepPart | None, addresses: Addresses) -> _RunRow:
    unit = history.unit
    low, high = point.interval or (None, None)
    reason = (point.reason or "").partition("\n")[0]
    return _RunRow(
        link=_RunLink(point.run, addresses.run(point.run)),
        began=minute(point.started),
        status=point.status,
        value=figure(point.value, unit),
        overhead=figure(point.overhead, unit),
        interval=NOTHING if low == high else f"{figure(low, unit)} to {figure(high, unit)}",
        step=step,
        remark="undecided" if point.verdict is not None else reason[:_LONGEST_REMARK],
    )
