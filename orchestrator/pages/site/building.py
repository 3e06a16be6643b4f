# SPDX-License-Identifier: GPL-2.0-only
"""Build a site of all runs, experiments and metrics of a store, in a folder of its own.

A run's page is kept until its data change. All other pages are rendered again, and written if they differ.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import write_whole
from orchestrator.pages.run_page import PageContext, run_page
from orchestrator.plain_text import counted
from orchestrator.report.chart import sparkline
from orchestrator.report.figures import NOTHING, figure, signed_figure
from orchestrator.report.history_sheets import ExplainedStep, histories_csv, interval_figure, left_out
from orchestrator.report.html.frame import NavigationLink, Page, page_folder, render
from orchestrator.report.html.pictures import can_draw, history_picture
from orchestrator.report.table_report import ReportRegistry
from orchestrator.results.cost_history import HistoryPoint, Metric, history, metrics
from orchestrator.results.faults import storage_faults
from orchestrator.results.history_steps import RunProvenances, Steps, causes, steps_of
from orchestrator.results.runs import Run
from orchestrator.results.store import Baseline, RunEntry, Store, no_run_yet
from orchestrator.version import __version__

_POINTS = 24
_CAUSES = 3


@dataclass(frozen=True)
class MetricSummary:
    """A metric's line; ``last`` is its newest step. ``fitted`` unless the library for finding steps is missing."""

    metric: Metric
    course: str
    newest: str
    unit: str
    steps: int
    last: ExplainedStep | None
    fitted: bool

    @property
    def change(self) -> str:
        return NOTHING if self.last is None else signed_figure(self.last.step.change, self.unit)

    @property
    def causes(self) -> Sequence[str]:
        return [] if self.last is None else self.last.sentences(_CAUSES)


def minute(started: str) -> str:
    """``2026-03-01 12:00`` in UTC for a time of the store (ISO 8601)."""
    return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M}"


def day(started: str) -> str:
    """``2026-03-01`` for a time of the store."""
    return minute(started)[:10]


def days(first: str, last: str) -> str:
    """``from 2026-03-01 to 2026-03-06``, or ``on 2026-03-01`` for equal days."""
    begun, ended = day(first), day(last)
    return f"on {begun}" if begun == ended else f"from {begun} to {ended}"


# A site has a file for each run, experiment and metric.
#
# A file has the name of its subject, if that is plain and short. Any other name is simplified and gets a digest after
# ``~``, which plain names lack, so that names that differ only in case or after the 100th character are different files
# on every file system.

INDEX, RUNS = "index.html", "runs.html"

_LONGEST = 100
_PLAIN = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{_LONGEST - 1}}}")
_NAME = r"[a-z0-9~][a-z0-9._~-]*"

SitePath = Annotated[
    str,
    StringConstraints(
        pattern=rf"^((index|runs)\.html|(runs|experiments)/{_NAME}\.html|metrics/{_NAME}/{_NAME}\.(html|csv)"
        rf"|runs/{_NAME}\.html\.files/[A-Za-z0-9_+-][A-Za-z0-9._+@=,-]*)$",
        max_length=1000,
    ),
]
"""A file of a site, relative to its folder; no other file is ever written or removed."""


def file_name(name: str) -> str:
    """A unique file name, without suffix, for a name."""
    if _PLAIN.fullmatch(name):
        return name
    plain = re.sub("[^a-z0-9._-]+", "-", name.lower())[: _LONGEST - 20].strip("-._")
    return f"{plain}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def run_file(run: str) -> str:
    """The file of a run's page."""
    return f"runs/{file_name(run)}.html"


def experiment_file(experiment: str) -> str:
    """The file of an experiment's page."""
    return f"experiments/{file_name(experiment)}.html"


def metric_file(metric: Metric) -> str:
    """The file of a metric's page."""
    return f"metrics/{file_name(metric.experiment)}/{file_name(metric.cell)}.html"


def csv_file(page: str) -> str:
    """The CSV file of a metric's page."""
    return f"{page.removesuffix('.html')}.csv"


@dataclass(frozen=True)
class Addresses:
    """Relative addresses from ``page``; ``runs`` and ``metrics`` are those with pages."""

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

    def above(self, experiment: str) -> list[NavigationLink]:
        links = [NavigationLink(self.index, "Overview"), NavigationLink(self.all_runs, "All runs")]
        return [*links, NavigationLink(self.experiment(experiment), f"Experiment {experiment}")]

    def _to(self, target: str) -> str:
        return "../" * self.page.count("/") + target


RECENT = 100
"""The newest runs, in which recent changes are looked for."""
_MOST_RUNS = 30
_MOST_CHANGES = 10
_MOST_CHANGED = 8
_MOST_CAUSES = 5


@dataclass(frozen=True)
class StepChange:
    """A run at which steps begin, and their metrics, the largest change first."""

    run: str
    metrics: Sequence[MetricSummary]

    @property
    def id(self) -> str:
        return f"change-{hashlib.sha256(self.run.encode()).hexdigest()[:8]}"

    @property
    def causes(self) -> Sequence[str]:
        return list(dict.fromkeys(cause for metric in self.metrics for cause in metric.causes))[:_MOST_CAUSES]


@dataclass(frozen=True)
class Overview:
    """The content of the store: runs, newest first, counts of cells by status, baselines by name.

    ``metrics`` is filled while the metrics' pages are made, before the pages that list them.
    """

    runs: Sequence[RunEntry]
    counts: Mapping[str, Counter[str]]
    baselines: Mapping[str, Baseline]
    metrics: list[MetricSummary] = field(default_factory=list)

    @cached_property
    def changes(self) -> Sequence[StepChange]:
        """The newest runs at which a metric's last step begins, newest first."""
        pairs: dict[str, list[tuple[float, MetricSummary]]] = {run.id: [] for run in self.runs[:RECENT]}
        for metric in self.metrics:
            if metric.last is not None and metric.last.step.after.run in pairs:
                pairs[metric.last.step.after.run].append((abs(metric.last.step.change), metric))
        return [
            StepChange(run, [summary for _, summary in sorted(of, key=itemgetter(0), reverse=True)])
            for run, of in pairs.items()
            if of
        ]

    @cached_property
    def experiments(self) -> Mapping[str, Sequence[RunEntry]]:
        """The runs of each experiment, the most recent experiment first."""
        entries: dict[str, list[RunEntry]] = {}
        for run in self.runs:
            entries.setdefault(run.experiment, []).append(run)
        return entries

    @cached_property
    def names(self) -> Mapping[str, Sequence[str]]:
        baselines: dict[str, list[str]] = {}
        for name, baseline in self.baselines.items():
            baselines.setdefault(baseline.run, []).append(name)
        return baselines

    def cells(self, run: str) -> Counter[str]:
        return self.counts.get(run, Counter())


def index_page(overview: Overview, addresses: Addresses) -> Page:
    """The first page: recent changes, latest runs, experiments."""
    runs = overview.runs
    count = f"{counted(len(runs), 'run')} of {counted(len(overview.experiments), 'experiment')}"
    return _rendered(
        "index.html.j2",
        "Probe lab",
        [
            NavigationLink("#changed", "Recent changes"),
            NavigationLink("#runs", "Latest runs"),
            NavigationLink("#experiments", "Experiments"),
            NavigationLink(addresses.all_runs, "All runs"),
        ],
        addresses,
        overview=overview,
        summary=[f"{count}, the newest of {minute(runs[0].started)} UTC."],
        recent=min(RECENT, len(runs)),
        changes=overview.changes[:_MOST_CHANGES],
        most_changed=_MOST_CHANGED,
        runs=runs[:_MOST_RUNS],
        metrics=Counter(metric.metric.experiment for metric in overview.metrics),
        changed=Counter(metric.metric.experiment for change in overview.changes for metric in change.metrics),
    )


def experiment_page(overview: Overview, name: str, addresses: Addresses) -> Page:
    """The page of an experiment: its metrics and its latest runs."""
    runs = overview.experiments[name]
    metrics = [metric for metric in overview.metrics if metric.metric.experiment == name]
    sections = [NavigationLink("#metrics", "Metrics")] if metrics else []
    count = f"{counted(len(runs), 'run')} {days(runs[-1].started, runs[0].started)}"
    return _rendered(
        "experiment.html.j2",
        f"Experiment {name}",
        [
            NavigationLink(addresses.index, "Overview"),
            NavigationLink(addresses.all_runs, "All runs"),
            *sections,
            NavigationLink("#runs", "Runs"),
        ],
        addresses,
        overview=overview,
        summary=[f"{count}, {counted(len(metrics), 'metric')}."],
        metrics=metrics,
        runs=runs[:_MOST_RUNS],
        more_runs=len(runs[_MOST_RUNS:]),
    )


def _rendered(
    template: str, title: str, links: Sequence[NavigationLink], addresses: Addresses, **content: object
) -> Page:
    """A page whose template gets the addresses and functions that format times and figures."""
    forms = {"minute": minute, "day": day, "figure": figure, "signed": signed_figure, "counted": counted}
    return Page(render(template, title, links, addresses=addresses, **forms, **content))


MOST_STEPS = 50
"""The newest steps that a page lists; the chart has all."""
_MOST_METRIC_RUNS = 100
_MOST_STEP_CAUSES = 12
_LONGEST_REMARK = 160


def metric_page(steps: Steps, explained: Sequence[ExplainedStep], lacking: str, addresses: Addresses) -> Page:
    """The page of a metric and a CSV file with all points; ``explained`` has its newest steps, newest first.

    ``lacking`` names a missing library for finding steps.
    """
    history = steps.history
    points, newest, metric = history.points, history.newest.metric, history.metric
    when = days(points[0].started, points[-1].started)
    table = csv_file(PurePosixPath(addresses.page).name)
    page = _rendered(
        "metric.html.j2",
        str(metric),
        [
            *addresses.above(metric.experiment),
            *(NavigationLink(f"#{section.lower()}", section) for section in ("Course", "Steps", "Runs")),
        ],
        addresses,
        summary=[
            f"{newest[:1].upper()}{newest[1:]} in {history.unit}: {counted(len(points), 'run')} {when}.",
            *reversed(left_out(history)),
        ],
        picture=history_picture(steps, "chart"),
        how=steps.how,
        lacking=lacking,
        steps=explained,
        most_causes=_MOST_STEP_CAUSES,
        earlier_steps=len(steps.ordered) - len(explained),
        begins={step.step.after.run: (number, step.step.change) for number, step in enumerate(explained, 1)},
        points=points[: -_MOST_METRIC_RUNS - 1 : -1],
        runs=len(points),
        unit=history.unit,
        interval=interval_figure,
        remark=_remark,
        table=table,
    )
    return replace(page, files={table: histories_csv([steps]).encode()})


def _remark(point: HistoryPoint) -> str:
    return "undecided" if point.verdict is not None else (point.reason or "").partition("\n")[0][:_LONGEST_REMARK]


class KeptPage(BaseModel):
    """The state of a page: its other ``files``, and for a finished run's page a digest of its data."""

    made_from: str = ""
    files: tuple[SitePath, ...] = ()


class SiteState(BaseModel):
    """All pages of a site by file; ``lab`` is the results folder."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    lab: str
    pages: dict[SitePath, KeptPage] = {}


_OWN, _STATE, _LOCK = ".site", "state.json", "lock"
_LARGEST_STATE = 256 << 20  # 1000 runs and 100 metrics take 300 kB
_PATIENCE_SECONDS = 600


class SiteFolder:
    """A site that this process has locked; ``opened_site`` returns one.

    All methods raise HostError if the disk is full or not writable, UsageError if a foreign file is in the way.
    """

    def __init__(self, directory: Path, state: SiteState) -> None:
        self.directory = directory
        self._pages, self._state = state.pages, state

    def claim(self, pages: Mapping[str, Iterable[str]]) -> None:
        """Record pages with their other files before writing them, so that the next build may overwrite them."""
        known = {name for path, page in self._pages.items() for name in (path, *page.files)}
        for path, files in pages.items():
            for file in (self.directory / name for name in (path, *files) if name not in known):
                if file.exists() or file.is_symlink():
                    what = "this file does not belong to the site, and a page would replace it"
                    raise UsageError(what, where=str(file), hint="move it away, or name another folder")
        for path, files in pages.items():
            page = self._pages.get(path, KeptPage())
            self._pages[path] = KeptPage(made_from=page.made_from, files=tuple(sorted({*page.files, *files})))
        self.save()

    def is_current(self, path: str, made_from: str) -> bool:
        page = self._pages.get(path)
        return page is not None and page.made_from == made_from and (self.directory / path).is_file()

    def put(self, path: str, page: Page, made_from: str = "") -> bool:
        """Write a claimed page after its other files, if they differ; returns whether they do."""
        folder = posixpath.join(posixpath.dirname(path), page.folder)
        files = {posixpath.join(folder, name): content for name, content in page.files.items()}
        before = set(self._pages[path].files)
        if files.keys() - before:
            self.claim({path: files})
        written = [self._write(name, content) for name, content in {**files, path: page.text.encode()}.items()]
        for name in before - files.keys():
            self._remove(name)
        self._pages[path] = KeptPage(made_from=made_from, files=tuple(sorted(files)))
        return any(written)

    def keep_only(self, pages: Container[str]) -> int:
        """Remove all other pages of the site with their files, and return their number."""
        outdated = [path for path in self._pages if path not in pages]
        for path in outdated:
            for name in (path, *self._pages.pop(path).files):
                self._remove(name)
        return len(outdated)

    def save(self) -> None:
        file = self.directory / _OWN / _STATE
        with storage_faults(file):
            write_whole(file, self._state.model_dump_json(exclude_defaults=True))

    def _write(self, path: str, content: bytes) -> bool:
        file = self.directory / path
        with storage_faults(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            self._check_inside(file)
            if file.is_file() and file.read_bytes() == content:
                return False
            write_whole(file, content)
        return True

    def _remove(self, path: str) -> None:
        file = self.directory / path
        if not file.parent.is_dir():
            return
        self._check_inside(file)
        with storage_faults(file):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            file.parent.rmdir()

    def _check_inside(self, file: Path) -> None:
        if not file.parent.resolve().is_relative_to(self.directory.resolve()):
            raise UsageError("this link leads out of the site", where=str(file.parent), hint="remove the link")


@contextmanager
def opened_site(directory: Path, lab: Path) -> Iterator[SiteFolder]:
    """The locked site in ``directory``, which is made if missing; waits for another build.

    Raises UsageError for a folder with other files or another lab's site; HostError as ``SiteFolder``.
    """
    path = directory / _OWN
    hint = "name a new or empty folder, or that of an earlier site"
    with storage_faults(path):
        if directory.exists() and not directory.is_dir():
            raise UsageError("this is a file; a site needs a folder", where=str(directory), hint=hint)
        files = sorted(file.name for file in directory.iterdir() if file.name != _OWN) if directory.exists() else []
        if files and not (path / _STATE).is_file():
            what = "this folder has files, but is not a site"
            raise UsageError(what, where=str(directory), detail=files[:5], hint=hint)
        path.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path / _LOCK, timeout=_PATIENCE_SECONDS):
            folder = SiteFolder(directory, _state(path / _STATE, str(lab.resolve())))
            try:
                yield folder
            finally:
                folder.save()
    except Timeout as error:
        what = "timeout while another process builds this site"
        raise LabError(what, where=str(directory), hint="Wait for it to end.") from error


def _state(file: Path, lab: str) -> SiteState:
    if not file.exists():
        return SiteState(lab=lab)
    try:
        with storage_faults(file), file.open("rb") as opened:
            state = SiteState.model_validate_json(opened.read(_LARGEST_STATE))
    except ValidationError as error:
        what = "damaged, or written by a newer version of this program"
        raise LabError(what, where=str(file), hint="Make a new site in another folder.") from error
    if state.lab != lab:
        what, where = f"this is the site of another lab: {state.lab}", str(file.parents[1])
        raise UsageError(what, where=where, hint=f"name another folder for the site of {lab}")
    return state


_FOLDERS = ("benchmarks", "catalog", "report", "results")


def program_digest() -> str:
    """A digest of this program's version and of its code that lays out results, and whether charts can be drawn."""
    package = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(f"{__version__} {can_draw()}".encode())
    for file in sorted(file for folder in _FOLDERS for file in (package / folder).rglob("*")):
        if file.suffix in (".py", ".j2", ".css", ".js", ".yaml"):
            digest.update(f"\0{file.relative_to(package)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class SiteBuilt:
    """The result of a build: numbers of pages; ``lacking`` names a missing library, or is empty."""

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
    """Update the site in ``directory`` from the store, with pages of the newest ``most_runs`` runs, or of all.

    ``progress`` gets the numbers of finished and of all pages. Raises UsageError for a folder with other files and for
    a store without a run, HostError if the disk is full or not writable.
    """
    if not store.runs():
        raise no_run_yet(store.path)
    with opened_site(directory, store.directory) as folder:
        return _Build(store, folder, registry, most_runs).run(progress)


class _Build:
    """One build, of the store's content at its beginning."""

    def __init__(self, store: Store, folder: SiteFolder, registry: ReportRegistry, most_runs: int | None) -> None:
        self._store, self._folder, self._registry = store, folder, registry
        self._overview = Overview(store.runs(), store.cell_counts(), store.baselines())
        self._shown = self._overview.runs[:most_runs]
        self._earlier = {
            later.id: run.id for runs in self._overview.experiments.values() for later, run in pairwise(runs)
        }
        self._metrics = metrics(store, with_outcome=True)
        self._addresses = Addresses({run.id for run in self._shown}, set(self._metrics))
        self._provenances = RunProvenances(store)
        self._program = program_digest()

    def run(self, progress: Callable[[int, int], None]) -> SiteBuilt:
        overview = self._overview
        pages: dict[str, tuple[str, Callable[[Addresses], Page]]] = {
            **{run_file(run.id): (run.id, partial(self._run_page, run)) for run in self._shown},
            **{metric_file(metric): (str(metric), partial(self._metric_page, metric)) for metric in self._metrics},
            # After the metrics, which these pages list.
            **{
                experiment_file(name): (name, partial(experiment_page, overview, name)) for name in overview.experiments
            },
            RUNS: ("All runs", self._list_of_runs),
            INDEX: ("Overview", partial(index_page, overview)),
        }
        made_from = {run_file(run.id): self._made_from(run) for run in self._shown}
        tables = {path: [csv_file(path)] for path in map(metric_file, self._metrics)}
        self._folder.claim({path: tables.get(path, ()) for path in pages})
        written = 0
        for number, (path, (title, make)) in enumerate(pages.items()):
            progress(number, len(pages))
            if path not in made_from or not self._folder.is_current(path, made_from[path]):
                written += self._folder.put(path, self._page(path, title, make), made_from.get(path, ""))
        removed = self._folder.keep_only(pages)
        progress(len(pages), len(pages))
        lacking = "" if all(line.fitted for line in overview.metrics) else "steps of times need ruptures"
        return SiteBuilt(self._folder.directory, len(pages), written, removed, lacking)

    def _page(self, path: str, title: str, make: Callable[[Addresses], Page]) -> Page:
        """A page; for a LabError, a page with the error, so that the other pages are still made."""
        at = self._addresses.seen_from(path)
        try:
            return make(at)
        except LabError as error:
            return Page(render("unreadable.html.j2", title, [NavigationLink(at.index, "Overview")], reason=str(error)))

    def _made_from(self, run: RunEntry) -> str:
        before = self._addresses.run(self._earlier.get(run.id, ""))
        cells = sorted(self._overview.cells(run.id).items())
        facts = (self._program, run.status, run.finished, str(run.directory), run.digest, cells, before)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def _list_of_runs(self, at: Addresses) -> Page:
        links, overview = [NavigationLink(at.index, "Overview")], self._overview
        return _rendered("runs.html.j2", "All runs", links, at, overview=overview, runs=overview.runs)

    def _run_page(self, run: RunEntry, at: Addresses) -> Page:
        before = at.run(self._earlier.get(run.id, ""))
        remarks = {
            "running": ["The run was still running when this page was made."],
            "interrupted": ["The run was interrupted."],
        }
        context = PageContext(
            links=[*at.above(run.experiment), *([] if before is None else [NavigationLink(before, "Earlier run")])],
            remarks=remarks.get(run.status, []),
            history=lambda cell: at.metric(Metric(run.experiment, cell)),
        )
        stored = Run(self._store.load_run(run.id), run.directory, self._overview.cells(run.id)["planned"])
        return run_page(stored, self._registry, page_folder(Path(at.page)), context)

    def _metric_page(self, metric: Metric, at: Addresses) -> Page:
        metric_history = history(self._store, metric)
        assert metric_history is not None, "only metrics with an outcome are listed"
        lacking = ""
        try:
            steps = steps_of(metric_history)
        except HostError as error:
            steps, lacking = Steps(metric_history, [], ""), f"{error.what}: {error.hint}"
        newest = steps.ordered[: -MOST_STEPS - 1 : -1]
        explained = [ExplainedStep(step, causes(self._provenances, step, metric)) for step in newest]
        values = [metric_history.of(point) for point in metric_history.points]
        shown = (
            metric_history.points[-1].status
            if values[-1] is None
            else f"{figure(values[-1], metric_history.unit)} {metric_history.unit}"
        )
        line = MetricSummary(
            metric=metric,
            course=sparkline(values, _POINTS),
            newest=shown,
            unit=metric_history.unit,
            steps=len(steps.ordered),
            last=explained[0] if explained else None,
            fitted=not lacking,
        )
        self._overview.metrics.append(line)
        return metric_page(steps, explained, lacking, at)
