# SPDX-License-Identifier: GPL-2.0-only
"""The pages that lead to the others: the first one, all runs, and one for each experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from orchestrator.report.figures import NOTHING
from orchestrator.report.html.frame import Link, render
from orchestrator.report.site.addresses import Addresses
from orchestrator.report.site.metric_summary import MetricSummary
from orchestrator.report.site.moments import day, minute
from orchestrator.results.history import Metric
from orchestrator.results.store import RunEntry

RECENT = 100
"""Runs that are looked at for what changed lately."""
_MOST_RUNS = 30
_MOST_CHANGED = 50


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
    last_day: str
    last_address: str | None


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
    def changed(self) -> Sequence[MetricSummary]:
        """The metrics with a step in the newest runs, the newest step first."""
        recent = {run.id for run in self.runs[:RECENT]}
        found = [one for one in self.metrics if one.last is not None and one.last.after in recent]
        return sorted(found, key=lambda one: one.last.started if one.last else "", reverse=True)

    @cached_property
    def experiments(self) -> Mapping[str, Sequence[RunEntry]]:
        """The runs of each experiment; the one that ran last comes first."""
        found: dict[str, list[RunEntry]] = {}
        for run in self.runs:
            found.setdefault(run.experiment, []).append(run)
        return found


def index_page(overview: Overview, addresses: Addresses) -> str:
    """The first page: what changed lately, the latest runs, the experiments."""
    runs, shown = overview.runs, overview.changed[:_MOST_CHANGED]
    experiments = [_experiment_row(overview, name, addresses) for name in overview.experiments]
    count = f"{_counted(len(runs), 'run')} of {_counted(len(experiments), 'experiment')}"
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
        changed=[_metric_row(one, str(_metric(one)), addresses) for one in shown],
        more_changed=len(overview.changed) - len(shown),
        runs=[_run_row(overview, run, addresses) for run in runs[:_MOST_RUNS]],
        more_runs=len(runs[_MOST_RUNS:]),
        experiments=experiments,
    )


def runs_page(overview: Overview, addresses: Addresses) -> str:
    """The list of all runs."""
    rows = [_run_row(overview, run, addresses) for run in overview.runs]
    return render("runs.html.j2", "All runs", [Link(addresses.index, "Site")], runs=rows)


def experiment_page(overview: Overview, name: str, addresses: Addresses) -> str:
    """The page of an experiment: its metrics, and its latest runs."""
    runs = overview.experiments[name]
    metrics = [one for one in overview.metrics if one.experiment == name]
    sections = [("#metrics", "Metrics")] if metrics else []
    links = [(addresses.index, "Site"), (addresses.all_runs, "All runs"), *sections, ("#runs", "Runs")]
    count = f"{_counted(len(runs), 'run')} from {day(runs[-1].started)} to {day(runs[0].started)}"
    return render(
        "experiment.html.j2",
        f"Experiment {name}",
        [Link(target, text) for target, text in links],
        summary=[f"{count}, {_counted(len(metrics), 'metric')}."],
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


def _metric_row(summary: MetricSummary, name: str, addresses: Addresses) -> MetricRow:
    last = summary.last
    return MetricRow(
        name=name,
        address=addresses.metric(_metric(summary)),
        summary=summary,
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
        changed=sum(one.experiment == name for one in overview.changed),
    )


def _metric(summary: MetricSummary) -> Metric:
    return Metric(summary.experiment, summary.cell)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
