# SPDX-License-Identifier: GPL-2.0-only
"""The pages that lead to the others: the first one, all runs, and one for each experiment."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from orchestrator.counted import counted
from orchestrator.report.figures import NOTHING
from orchestrator.report.html.frame import Link, render
from orchestrator.report.site.addresses import Addresses
from orchestrator.report.site.course import Course, course_of
from orchestrator.report.site.metric_summary import MetricSummary
from orchestrator.report.site.moments import day, days, minute
from orchestrator.results.history import Metric
from orchestrator.results.store import RunEntry

RECENT = 100
"""Runs that are looked at for what changed lately."""
_MOST_RUNS = 30
_MOST_CHANGES = 10
_MOST_CHANGED = 8
_MOST_CAUSES = 5


@dataclass(frozen=True)
class RunRow:
    """A run in a list."""

    run: str
    address: str | None
    experiment: str
    experiment_address: str
    began: str
    status: str
    ok: int
    failed: int
    other: int
    open: int
    baselines: str


@dataclass(frozen=True)
class MetricRow:
    """A metric in a list; ``last_address`` is the page of the run that its last step begins with."""

    name: str
    address: str | None
    summary: MetricSummary
    course: Course
    last_day: str
    last_address: str | None


@dataclass(frozen=True)
class Change:
    """A run with which steps begin: the metrics that have one, the largest change first, and what was different."""

    id: str
    title: str
    run: str
    address: str | None
    causes: Sequence[str]
    metrics: Sequence[MetricRow]
    others: int
    experiment_address: str


@dataclass(frozen=True)
class ExperimentRow:
    """An experiment in a list."""

    name: str
    address: str
    runs: int
    newest: str
    newest_address: str | None
    began: str
    metrics: int
    changed: int


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
    def changed(self) -> Mapping[str, Sequence[MetricSummary]]:
        """The metrics whose last step begins with one of the newest runs, by that run, the newest first."""
        found: dict[str, list[MetricSummary]] = {run.id: [] for run in self.runs[:RECENT]}
        for one in self.metrics:
            if one.last is not None and one.last.after in found:
                found[one.last.after].append(one)
        return {run: metrics for run, metrics in found.items() if metrics}

    @cached_property
    def experiments(self) -> Mapping[str, Sequence[RunEntry]]:
        """The runs of each experiment; the one that ran last comes first."""
        found: dict[str, list[RunEntry]] = {}
        for run in self.runs:
            found.setdefault(run.experiment, []).append(run)
        return found


def index_page(overview: Overview, addresses: Addresses) -> str:
    """The first page: what changed lately, the latest runs, the experiments."""
    runs = overview.runs
    changes = [_change(*one, addresses) for one in list(overview.changed.items())[:_MOST_CHANGES]]
    experiments = [_experiment_row(overview, name, addresses) for name in overview.experiments]
    count = f"{counted(len(runs), 'run')} of {counted(len(experiments), 'experiment')}"
    return render(
        "index.html.j2",
        "Probe lab",
        [
            Link("#changed", "Changed lately"),
            Link("#runs", "Latest runs"),
            Link("#experiments", "Experiments"),
            Link(addresses.all_runs, "All runs"),
        ],
        summary=[f"{count}, the newest of {minute(runs[0].started)} UTC."],
        recent=min(RECENT, len(runs)),
        changes=changes,
        more_changes=len(overview.changed) - len(changes),
        runs=[_run_row(overview, run, addresses) for run in runs[:_MOST_RUNS]],
        more_runs=len(runs[_MOST_RUNS:]),
        experiments=experiments,
    )


def runs_page(overview: Overview, addresses: Addresses) -> str:
    """The list of all runs."""
    rows = [_run_row(overview, run, addresses) for run in overview.runs]
    return render("runs.html.j2", "All runs", [Link(addresses.index, "Overview")], runs=rows)


def experiment_page(overview: Overview, name: str, addresses: Addresses) -> str:
    """The page of an experiment: its metrics, and its latest runs."""
    runs = overview.experiments[name]
    metrics = [one for one in overview.metrics if one.experiment == name]
    sections = [("#metrics", "Metrics")] if metrics else []
    links = [(addresses.index, "Overview"), (addresses.all_runs, "All runs"), *sections, ("#runs", "Runs")]
    count = f"{counted(len(runs), 'run')} {days(runs[-1].started, runs[0].started)}"
    return render(
        "experiment.html.j2",
        f"Experiment {name}",
        [Link(target, text) for target, text in links],
        summary=[f"{count}, {counted(len(metrics), 'metric')}."],
        metrics=[_metric_row(one, one.cell, addresses) for one in metrics],
        runs=[_run_row(overview, run, addresses) for run in runs[:_MOST_RUNS]],
        more_runs=len(runs[_MOST_RUNS:]),
        all_runs=addresses.all_runs,
    )


def _run_row(overview: Overview, run: RunEntry, addresses: Addresses) -> RunRow:
    cells = overview.counts.get(run.id, Counter())
    return RunRow(
        run=run.id,
        address=addresses.run(run.id),
        experiment=run.experiment,
        experiment_address=addresses.experiment(run.experiment),
        began=minute(run.started),
        status=run.status,
        ok=cells["ok"],
        failed=cells["failed"],
        other=cells["skipped"] + cells["unsupported"],
        open=cells["planned"],
        baselines=", ".join(overview.baselines.get(run.id, ())),
    )


def _change(run: str, metrics: Sequence[MetricSummary], addresses: Addresses) -> Change:
    """The change that begins with a run."""
    ordered = sorted(metrics, key=lambda one: one.last.size if one.last else 0.0, reverse=True)
    lasts = [one.last for one in ordered if one.last is not None]
    causes = list(dict.fromkeys(cause for last in lasts for cause in last.causes))
    shown = ordered[:_MOST_CHANGED]
    return Change(
        id=f"change-{hashlib.sha256(run.encode()).hexdigest()[:8]}",
        title=f"{day(lasts[0].started)}: {counted(len(metrics), 'metric')} of {metrics[0].experiment}",
        run=run,
        address=addresses.run(run),
        causes=causes[:_MOST_CAUSES],
        metrics=[_metric_row(one, one.cell, addresses) for one in shown],
        others=len(metrics) - len(shown),
        experiment_address=addresses.experiment(metrics[0].experiment),
    )


def _metric_row(summary: MetricSummary, name: str, addresses: Addresses) -> MetricRow:
    last = summary.last
    return MetricRow(
        name=name,
        address=addresses.metric(_metric(summary)),
        summary=summary,
        course=course_of(summary.course),
        last_day=NOTHING if last is None else day(last.started),
        last_address=None if last is None else addresses.run(last.after),
    )


def _experiment_row(overview: Overview, name: str, addresses: Addresses) -> ExperimentRow:
    runs = overview.experiments[name]
    return ExperimentRow(
        name=name,
        address=addresses.experiment(name),
        runs=len(runs),
        newest=runs[0].id,
        newest_address=addresses.run(runs[0].id),
        began=minute(runs[0].started),
        metrics=sum(one.experiment == name for one in overview.metrics),
        changed=sum(one.experiment == name for metrics in overview.changed.values() for one in metrics),
    )


def _metric(summary: MetricSummary) -> Metric:
    return Metric(summary.experiment, summary.cell)
