# SPDX-License-Identifier: GPL-2.0-only
"""A site of all runs, experiments and metrics of a store, of which only what has changed is made again."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from markupsafe import Markup
from pydantic import TypeAdapter

from orchestrator import __version__
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import write_whole
from orchestrator.program import PROGRAM
from orchestrator.report.chart import Chart
from orchestrator.report.history_sheets import ExplainedStep, Traced
from orchestrator.report.html.frame import Link, Page, beside, render
from orchestrator.report.html.pictures import chart_picture
from orchestrator.report.html.run_page import Surroundings, run_page
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.site.folder import SiteFolder, opened_site
from orchestrator.report.site.pages import (
    INDEX,
    MOST_STEPS,
    RUNS,
    Addresses,
    MetricSummary,
    Overview,
    experiment_file,
    experiment_page,
    index_page,
    metric_file,
    metric_page,
    run_file,
    runs_page,
    summary_of,
)
from orchestrator.results.faults import storage_faults
from orchestrator.results.history import Metric, history, outcomes
from orchestrator.results.history_steps import Origins, Steps, causes, steps_of
from orchestrator.results.runs import Run
from orchestrator.results.store import RunEntry, Store

# Charts that earlier pages have: equal results are drawn once. matplotlib takes 0.1 s for each, and 0.6 s to load.

_MOST = 400
"""Charts that are kept: 6 MB."""
_LARGEST_FILE = 64 << 20


class DrawnCharts:
    """The charts that were drawn last, in ``file``; ``program`` says what draws them."""

    def __init__(self, file: Path, program: str) -> None:
        self._file = file
        self._program = program
        self._charts = _loaded(file)
        self._is_saved = True

    def picture(self, chart: Chart, name: str) -> Markup:
        key = hashlib.sha256(repr((self._program, name, chart)).encode()).hexdigest()
        known = self._charts.pop(key, None)
        if known is None:
            known = str(chart_picture(chart, name))
            self._is_saved = False
        self._charts[key] = known  # the last one used is the last one kept
        if len(self._charts) > _MOST:
            del self._charts[next(iter(self._charts))]
        return Markup(known)  # noqa: S704 (drawn above)

    def save(self) -> None:
        if not self._is_saved:
            with storage_faults(self._file):
                write_whole(self._file, json.dumps(self._charts))
            self._is_saved = True


def _loaded(file: Path) -> dict[str, str]:
    """What is kept; nothing where it is missing or damaged."""
    try:
        with file.open("rb") as opened:
            return TypeAdapter(dict[str, str]).validate_json(opened.read(_LARGEST_FILE))
    except (OSError, ValueError):
        return {}


# What makes the pages: another version of it makes all of them anew.

_FOLDERS = ("benchmarks", "catalog", "report", "results")
_LIBRARIES = ("matplotlib", "ruptures")
"""Optional: pages say what they lack without them."""


def program_digest() -> str:
    """A digest of this program's version, of what lays out its results, and of the libraries that are there."""
    package = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(__version__.encode())
    for folder in _FOLDERS:
        for file in sorted((package / folder).rglob("*")):
            if file.suffix in (".py", ".j2", ".css", ".js", ".yaml"):
                digest.update(f"\0{file.relative_to(package)}\0".encode())
                digest.update(file.read_bytes())
    digest.update(repr([name for name in _LIBRARIES if find_spec(name) is not None]).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class SiteBuilt:
    """A site: how many pages it has, how many of them were written now, and how many others were removed.

    ``lacking`` is what the pages say is not installed; empty where nothing is.
    """

    directory: Path
    pages: int
    written: int
    removed: int
    lacking: str = ""

    @property
    def index(self) -> Path:
        return self.directory / INDEX


def build_site(
    store: Store,
    directory: Path,
    registry: ReportRegistry,
    most_runs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, pages: None,
) -> SiteBuilt:
    """Bring the site in ``directory`` up to date with the store; the newest ``most_runs`` runs have a page, or all.

    ``progress`` gets the number of pages that are done, and of all. Raises UsageError for a folder that has other files
    and for a store without a run, HostError when the disk is full or not writable.
    """
    if not store.runs():
        raise UsageError("there is no run yet", where=str(store.path), hint=f"Make one: {PROGRAM} run CONFIG")
    with opened_site(directory, store.directory) as folder:
        return _Build(store, folder, registry, most_runs).done(progress)


class _Build:
    """One build: what the store has at its beginning, and what was written so far."""

    def __init__(self, store: Store, folder: SiteFolder, registry: ReportRegistry, most_runs: int | None) -> None:
        self._store, self._folder, self._registry = store, folder, registry
        self._runs, self._counts = store.runs(), store.cell_counts()
        self._shown = self._runs[:most_runs]
        self._outcomes = outcomes(store, self._shown[-1].id)
        self._origins = Origins(store)
        self._program = program_digest()
        self._addresses = Addresses({run.id for run in self._shown}, self._outcomes.keys())
        self._charts = DrawnCharts(folder.own / "charts.json", self._program)
        self._earlier = _earlier(self._runs)
        self._written = 0

    def done(self, progress: Callable[[int, int], None]) -> SiteBuilt:
        runs = {run_file(run.id): run for run in self._shown}
        metrics = {metric_file(metric): metric for metric in self._outcomes}
        experiments = {experiment_file(run.experiment): run.experiment for run in self._runs}
        pages = {*runs, *metrics, *experiments, INDEX, RUNS}
        self._folder.claim(pages)
        try:
            for number, (path, run) in enumerate(runs.items()):
                progress(number, len(pages))
                self._make_run(path, run)
            for number, (path, metric) in enumerate(metrics.items(), len(runs)):
                progress(number, len(pages))
                self._make_metric(path, metric)
        finally:
            self._charts.save()
        lines = [MetricSummary.model_validate(line) for path in metrics if (line := self._folder.line(path))]
        overview = Overview(self._runs, self._counts, lines, self._baselines())
        for path, name in experiments.items():
            self._make_overview(path, experiment_page(overview, name, self._addresses.seen_from(path)))
        self._make_overview(RUNS, runs_page(overview, self._addresses.seen_from(RUNS)))
        self._make_overview(INDEX, index_page(overview, self._addresses))
        removed = self._folder.keep_only(pages)
        progress(len(pages), len(pages))
        lacking = "" if all(line.fitted for line in lines) else "steps of times need ruptures"
        return SiteBuilt(self._folder.directory, len(pages), self._written, removed, lacking)

    def _make_run(self, path: str, run: RunEntry) -> None:
        cells, earlier = self._counts.get(run.id, Counter()), self._earlier.get(run.id)
        facts = (run.status, run.finished, str(run.directory), run.digest, sorted(cells.items()))

        def page(at: Addresses) -> tuple[Page, None]:
            found = Run(self._store.load_run(run.id), run.directory, cells["planned"])
            return run_page(found, self._registry, beside(Path(path)), self._surroundings(run, earlier, at)), None

        self._make(path, run.id, self._digest(*facts, self._addresses.run(earlier) if earlier else None), page)

    def _surroundings(self, run: RunEntry, earlier: str | None, at: Addresses) -> Surroundings:
        before = at.run(earlier) if earlier is not None else None
        remarks = {"running": ["It was still running when this page was made."], "interrupted": ["It was interrupted."]}
        return Surroundings(
            links=[*at.above(run.experiment), *([] if before is None else [Link(before, "Earlier run")])],
            remarks=remarks.get(run.status, []),
            history=lambda cell: at.metric(Metric(run.experiment, cell)),
            picture=self._charts.picture,
        )

    def _make_metric(self, path: str, metric: Metric) -> None:
        def page(at: Addresses) -> tuple[Page, MetricSummary]:
            found = history(self._store, metric)
            assert found is not None, "a metric is listed for its outcomes"
            lacking = ""
            try:
                traced = Traced(found, steps_of(found))
            except HostError as error:
                traced, lacking = Traced(found, Steps([], "")), f"{error.what}: {error.hint}"
            newest = traced.steps.found[: -MOST_STEPS - 1 : -1]
            explained = [ExplainedStep(step, causes(self._origins, step, metric)) for step in newest]
            return metric_page(traced, explained, lacking, at), summary_of(traced, explained, fitted=not lacking)

        self._make(path, str(metric), self._digest(self._outcomes[metric]), page)

    def _make_overview(self, path: str, text: str) -> None:
        self._make(path, path, hashlib.sha256(text.encode()).hexdigest(), lambda at: (Page(text), None))

    def _make(
        self, path: str, title: str, made_from: str, page: Callable[[Addresses], tuple[Page, MetricSummary | None]]
    ) -> None:
        """Make a page that is not there, with the reason where it cannot be shown: the others are made all the same."""
        if self._folder.is_current(path, made_from):
            return
        at = self._addresses.seen_from(path)
        try:
            made, line = page(at)
        except LabError as error:
            reason = render("unreadable.html.j2", title, [Link(at.index, "Overview")], reason=str(error))
            made, line = Page(reason), None
        self._folder.put(path, made, made_from, None if line is None else line.model_dump(mode="json"))
        self._written += 1

    def _baselines(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for baseline in self._store.baselines().values():
            found.setdefault(baseline.run, []).append(baseline.name)
        return found

    def _digest(self, *facts: object) -> str:
        return hashlib.sha256(repr((self._program, *facts)).encode()).hexdigest()


def _earlier(runs: Sequence[RunEntry]) -> Mapping[str, str]:
    """The run before each, of the same experiment; ``runs`` are the newest first."""
    later: dict[str, str] = {}
    found = {}
    for run in runs:
        if run.experiment in later:
            found[later[run.experiment]] = run.id
        later[run.experiment] = run.id
    return found
