# SPDX-License-Identifier: GPL-2.0-only
"""The pages of a site: overviews, metrics, and their addresses."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import StringConstraints

from orchestrator.plain_text import counted
from orchestrator.report.chart import sparkline
from orchestrator.report.history_sheets import (
    ExplainedStep,
    Traced,
    histories_csv,
    history_chart,
    interval_figure,
    left_out,
)
from orchestrator.report.html.frame import Link, Page, render
from orchestrator.report.html.pictures import history_picture
from orchestrator.report.sheet import figure, signed_figure
from orchestrator.results.contract import Record
from orchestrator.results.history import History, Metric, Point
from orchestrator.results.store import RunEntry

# A metric's line in a list: its course, its newest figure, and its last step. It is kept until the metric changes.

_POINTS = 48
HEIGHTS = "0123456789ABCDEF"
NO_NUMBER = "!"
_CAUSES = 3


class LastStep(Record):
    """The newest step: the run behind it, when that began, what it costs more, and why.

    ``change`` is a text, ``size`` the figure without its sign.
    """

    after: str
    started: str
    change: str
    size: float
    causes: list[str]


class MetricSummary(Record):
    """A metric's line. ``course`` has a hexadecimal digit for its height at each point, ``!`` where it has no number.

    ``fitted`` is False where the library that finds its steps was missing.
    """

    experiment: str
    cell: str
    course: str
    newest: str
    steps: int
    last: LastStep | None = None
    fitted: bool = True

    @property
    def metric(self) -> Metric:
        return Metric(self.experiment, self.cell)


def summary_of(traced: Traced, explained: Sequence[ExplainedStep], *, fitted: bool) -> MetricSummary:
    """The line of a metric; of its steps ``explained`` has the newest ones, newest first."""
    history = traced.history
    values = [history.of(point) for point in history.points]
    newest, value = history.points[-1], values[-1]
    return MetricSummary(
        experiment=history.metric.experiment,
        cell=history.metric.cell,
        course=sparkline(values, _POINTS, HEIGHTS + NO_NUMBER),
        newest=f"{figure(value, history.unit)} {history.unit}" if value is not None else newest.status,
        steps=len(traced.steps.found),
        last=_last(explained[0], history.unit) if explained else None,
        fitted=fitted,
    )


def _last(newest: ExplainedStep, unit: str) -> LastStep:
    step = newest.step
    return LastStep(
        after=step.after.run,
        started=step.after.started,
        change=signed_figure(step.change, unit),
        size=abs(step.change),
        causes=newest.sentences(_CAUSES),
    )


# A metric's course as a small picture beside its name.

_WIDTH, _HEIGHT = 144, 20


@dataclass(frozen=True)
class Course:
    """What is drawn in ``width`` by ``height`` pixels: a line, and crosses at points without a number."""

    line: str
    crosses: str
    title: str
    width: int = _WIDTH
    height: int = _HEIGHT


def course_of(heights: str) -> Course:
    """The picture of a summary's course, which has one point at least."""
    across = _WIDTH / len(heights)
    changes = any(one != other for one, other in pairwise(heights.replace(NO_NUMBER, "")))
    gaps = ", with runs that have no number" if NO_NUMBER in heights else ""
    failed = [round((at + 0.5) * across, 1) for at, one in enumerate(heights) if one == NO_NUMBER]
    return Course(
        line="".join(_line(heights, across)),
        crosses="".join(f"M{place - 2:g} {_HEIGHT - 5}l4 4m0 -4l-4 4" for place in failed),
        title=f"Course: {'it changes' if changes else 'level'}{gaps}",
    )


def _line(heights: str, across: float) -> Iterator[str]:
    """A stair: a level that holds is a line of its length."""
    before = NO_NUMBER
    for at, one in enumerate(heights):
        if one != NO_NUMBER:
            height = _HEIGHT - 2 - (_HEIGHT - 4) * HEIGHTS.index(one) // (len(HEIGHTS) - 1)
            if before == NO_NUMBER:
                yield f"M{round(at * across, 1):g} {height}"
            elif before != one:
                yield f"V{height}"
            yield f"H{round((at + 1) * across, 1):g}"
        before = one


# Moments as a site's pages have them: UTC, since they are read anywhere.


def minute(started: str) -> str:
    """``2026-03-01 12:00`` for a moment as the store has it (ISO 8601)."""
    return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M}"


def day(started: str) -> str:
    """``2026-03-01`` for a moment as the store has it."""
    return minute(started)[:10]


def days(first: str, last: str) -> str:
    """``from 2026-03-01 to 2026-03-06``, or ``on 2026-03-01`` where both are of one day."""
    begun, ended = day(first), day(last)
    return f"on {begun}" if begun == ended else f"from {begun} to {ended}"


# Where a site's pages are: a file for each run, experiment and metric, and links from one to another.
#
# A file is called after what its page is of, where that is plain and short. Any other name is made plain, and a digest
# behind ``~``, which no plain name has, tells it apart: names that differ in case only, or behind the 100th character,
# are different files on every file system.

INDEX, RUNS = "index.html", "runs.html"

_LONGEST = 100
_PLAIN = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{_LONGEST - 1}}}")
_NAME = r"[a-z0-9~][a-z0-9._~-]*"

SitePath = Annotated[
    str,
    StringConstraints(
        pattern=rf"^((index|runs)\.html|(runs|experiments)/{_NAME}\.html|metrics/{_NAME}/{_NAME}\.(html|csv)"
        rf"|runs/{_NAME}\.html\.files/[A-Za-z0-9_+-][A-Za-z0-9._+@-]*)$",
        max_length=1000,
    ),
]
"""A file of a site, relative to its folder; no other is ever written or removed."""


def file_name(name: str) -> str:
    """The name, without suffix, of the file of what is called so; different for different names."""
    if _PLAIN.fullmatch(name):
        return name
    plain = re.sub("[^a-z0-9._-]+", "-", name.lower())[: _LONGEST - 20].strip("-._")
    return f"{plain}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def run_file(run: str) -> str:
    """The page of a run."""
    return f"runs/{file_name(run)}.html"


def experiment_file(experiment: str) -> str:
    """The page of an experiment."""
    return f"experiments/{file_name(experiment)}.html"


def metric_file(metric: Metric) -> str:
    """The page of a metric."""
    return f"metrics/{file_name(metric.experiment)}/{file_name(metric.cell)}.html"


@dataclass(frozen=True)
class Addresses:
    """Relative addresses from ``page``, for which ``runs`` and ``metrics`` have pages."""

    runs: Container[str]
    metrics: Container[Metric]
    page: str = INDEX

    def seen_from(self, page: str) -> Addresses:
        return replace(self, page=page)

    @property
    def index(self) -> str:
        return self._to(INDEX)

    @property
    def all_runs(self) -> str:
        return self._to(RUNS)

    def experiment(self, name: str) -> str:
        return self._to(experiment_file(name))

    def run(self, run: str) -> str | None:
        return self._to(run_file(run)) if run in self.runs else None

    def metric(self, metric: Metric) -> str | None:
        return self._to(metric_file(metric)) if metric in self.metrics else None

    def above(self, experiment: str) -> list[Link]:
        """Links to the lists that have an experiment's runs and metrics."""
        links = [Link(self.index, "Overview"), Link(self.all_runs, "All runs")]
        return [*links, Link(self.experiment(experiment), f"Experiment {experiment}")]

    def _to(self, target: str) -> str:
        return "../" * self.page.count("/") + target


# The pages that lead to the others: the first one, all runs, and one for each experiment.

RECENT = 100
"""Runs that are looked at for what changed lately."""
_MOST_RUNS = 30
_MOST_CHANGES = 10
_MOST_CHANGED = 8
_MOST_CAUSES = 5


@dataclass(frozen=True)
class Change:
    """A run with which steps begin, and the metrics that have one."""

    run: str
    metrics: Sequence[MetricSummary]

    @property
    def id(self) -> str:
        return f"change-{hashlib.sha256(self.run.encode()).hexdigest()[:8]}"

    @property
    def ordered(self) -> Sequence[MetricSummary]:
        """The largest change first."""
        return sorted(self.metrics, key=lambda one: one.last.size if one.last else 0.0, reverse=True)

    @property
    def steps(self) -> Sequence[LastStep]:
        return [one.last for one in self.ordered if one.last is not None]

    @property
    def title(self) -> str:
        return f"{day(self.steps[0].started)}: {counted(len(self.metrics), 'metric')} of {self.metrics[0].experiment}"

    @property
    def causes(self) -> Sequence[str]:
        return list(dict.fromkeys(cause for step in self.steps for cause in step.causes))[:_MOST_CAUSES]


@dataclass(frozen=True)
class Overview:
    """What the store has: runs, the newest first, how many cells of each have which status, and the metrics' lines.

    ``baselines`` are the names of runs.
    """

    runs: Sequence[RunEntry]
    counts: Mapping[str, Counter[str]]
    metrics: Sequence[MetricSummary]
    baselines: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def changes(self) -> Sequence[Change]:
        """The metrics whose last step begins with one of the newest runs, by that run, the newest first."""
        found: dict[str, list[MetricSummary]] = {run.id: [] for run in self.runs[:RECENT]}
        for one in self.metrics:
            if one.last is not None and one.last.after in found:
                found[one.last.after].append(one)
        return [Change(run, metrics) for run, metrics in found.items() if metrics]

    @cached_property
    def experiments(self) -> Mapping[str, Sequence[RunEntry]]:
        """The runs of each experiment; the one that ran last comes first."""
        found: dict[str, list[RunEntry]] = {}
        for run in self.runs:
            found.setdefault(run.experiment, []).append(run)
        return found

    def cells(self, run: str) -> Counter[str]:
        return self.counts.get(run, Counter())


def index_page(overview: Overview, addresses: Addresses) -> str:
    """The first page: what changed lately, the latest runs, the experiments."""
    runs = overview.runs
    count = f"{counted(len(runs), 'run')} of {counted(len(overview.experiments), 'experiment')}"
    return _page(
        "index.html.j2",
        "Probe lab",
        [
            Link("#changed", "Changed lately"),
            Link("#runs", "Latest runs"),
            Link("#experiments", "Experiments"),
            Link(addresses.all_runs, "All runs"),
        ],
        addresses,
        overview=overview,
        summary=[f"{count}, the newest of {minute(runs[0].started)} UTC."],
        recent=min(RECENT, len(runs)),
        changes=overview.changes[:_MOST_CHANGES],
        most_changed=_MOST_CHANGED,
        runs=runs[:_MOST_RUNS],
        metrics=Counter(one.experiment for one in overview.metrics),
        changed=Counter(metric.experiment for one in overview.changes for metric in one.metrics),
    )


def runs_page(overview: Overview, addresses: Addresses) -> str:
    """The list of all runs."""
    links = [Link(addresses.index, "Overview")]
    return _page("runs.html.j2", "All runs", links, addresses, overview=overview, runs=overview.runs)


def experiment_page(overview: Overview, name: str, addresses: Addresses) -> str:
    """The page of an experiment: its metrics, and its latest runs."""
    runs = overview.experiments[name]
    metrics = [one for one in overview.metrics if one.experiment == name]
    sections = [Link("#metrics", "Metrics")] if metrics else []
    count = f"{counted(len(runs), 'run')} {days(runs[-1].started, runs[0].started)}"
    return _page(
        "experiment.html.j2",
        f"Experiment {name}",
        [Link(addresses.index, "Overview"), Link(addresses.all_runs, "All runs"), *sections, Link("#runs", "Runs")],
        addresses,
        overview=overview,
        summary=[f"{count}, {counted(len(metrics), 'metric')}."],
        metrics=metrics,
        runs=runs[:_MOST_RUNS],
        more_runs=len(runs[_MOST_RUNS:]),
    )


def _page(template: str, title: str, links: Sequence[Link], addresses: Addresses, **content: object) -> str:
    """A page whose template asks for addresses, and sets moments, figures and courses itself."""
    forms = {"minute": minute, "day": day, "figure": figure, "signed": signed_figure, "course_of": course_of}
    return render(template, title, links, addresses=addresses, **forms, **content)


# A metric as a page: the chart of its history, each step with its causes, and its runs.

MOST_STEPS = 50
"""Steps of a page, the newest; the chart has all."""
_MOST_METRIC_RUNS = 100
_MOST_STEP_CAUSES = 12
_LONGEST_REMARK = 160


def metric_page(traced: Traced, explained: Sequence[ExplainedStep], lacking: str, addresses: Addresses) -> Page:
    """The page of a metric; of its steps ``explained`` has the newest ones, newest first.

    ``lacking`` says what is not installed that would find steps. All points are in a CSV file beside the page.
    """
    history, steps = traced.history, traced.steps
    metric = history.metric
    table = f"{PurePosixPath(addresses.page).stem}.csv"
    text = _page(
        "metric.html.j2",
        str(metric),
        [*addresses.above(metric.experiment), *(Link(f"#{one.lower()}", one) for one in ("Course", "Steps", "Runs"))],
        addresses,
        summary=list(_sentences(history)),
        picture=history_picture(history_chart(history, steps), "chart"),
        how=steps.how,
        lacking=lacking,
        steps=explained,
        most_causes=_MOST_STEP_CAUSES,
        earlier_steps=len(steps.found) - len(explained),
        begins={one.step.after.run: (number, one.step.change) for number, one in enumerate(explained, 1)},
        points=history.points[: -_MOST_METRIC_RUNS - 1 : -1],
        runs=len(history.points),
        unit=history.unit,
        interval=interval_figure,
        remark=_remark,
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
    yield from reversed(left_out(history))


def _remark(point: Point) -> str:
    return "undecided" if point.verdict is not None else (point.reason or "").partition("\n")[0][:_LONGEST_REMARK]
