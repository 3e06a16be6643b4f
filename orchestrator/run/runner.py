# SPDX-License-Identifier: GPL-2.0-only
"""Running a plan: boots in parallel, outcomes stored as they complete; the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.diagnostics import is_of_code
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.artifacts.saved_guests import qemu_digests
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import ConfigError, HostError, LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.kind_registry import KindRegistry
from orchestrator.experiment.plan import Boot, Plan
from orchestrator.files import write_whole
from orchestrator.guest.guest import Guest
from orchestrator.guest.qemu_facts import qemu_cpu_names
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults
from orchestrator.results.run_files import Durations, durations
from orchestrator.results.runs import RunIdentity, prepare_directory, write_results
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.benchmark_kind import (
    EVENTS_FOLDER,
    PROFILES_FOLDER,
    ArtifactSource,
    BenchmarkKind,
    BootArtifacts,
    BootTask,
    Refused,
)
from orchestrator.run.boot_events import CellBegan, CellRecorded, Event, GuestBooted, Progress
from orchestrator.run.boot_preparation import prepare
from orchestrator.run.cell_records import compared
from orchestrator.run.executor import Executor, Job, JobEnded
from orchestrator.run.local_executor import LocalExecutor
from orchestrator.run.plan_check import check_plan
from orchestrator.run.provenance import Provenance, host_facts
from orchestrator.steps import LOG_NAME, step_echo, step_log
from orchestrator.version import __version__


def resolve_in_guests(
    context: BuildContext,
    experiment: Experiment,
    kinds: KindRegistry[BenchmarkKind],
    obtain: ArtifactSource | None = None,
) -> Experiment:
    """The experiment, completed by what its kinds ask guests for; the answers are cached.

    Raises GuestError, EvidenceError, HostError, and UsageError if a guest has no answer.
    """
    source = obtain or context.cache.obtain
    tables = [kinds.named(named.kind.name).find(context, named.table, source) for named in experiment.tables]
    pairs = zip(experiment.tables, tables, strict=True)
    return replace(experiment, tables=[replace(named, table=table) for named, table in pairs])


def resolve_from_cache(context: BuildContext, experiment: Experiment, kinds: KindRegistry[BenchmarkKind]) -> Experiment:
    """The same from cached answers only: no guest is started."""
    try:
        return resolve_in_guests(
            context, experiment, kinds, lambda kind, inputs, *making: context.cache.get(kind, inputs)
        )
    except HostError:  # a kernel that is not available
        return experiment


class TimeLeft:
    """The remaining time of a run whose ``unfinished`` cells are measured in ``jobs()`` guests in parallel.

    Workers come and go. ``clock`` is in seconds. If one cell's time is unknown, so is the run's.
    """

    def __init__(
        self,
        plan: Plan,
        unfinished: set[str],
        known: Durations,
        jobs: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._boots: Sequence[Mapping[str, float | None]] = [
            {cell.id: known.of(cell.id, cell.benchmark) for cell in boot.cells if cell.id in unfinished}
            for boot in plan.boots
        ]
        self._left = set(unfinished)
        self._jobs, self._clock = jobs, clock
        self._last = clock()

    def ended(self, cell: str) -> None:
        self._left.discard(cell)
        self._last = self._clock()

    def seconds(self) -> float | None:
        """Seconds left; None if unknown, or if the current cell takes longer than before."""
        boots: list[float] = []
        for boot in self._boots:
            each = [seconds for cell, seconds in boot.items() if cell in self._left]
            known = [seconds for seconds in each if seconds is not None]
            if len(known) < len(each):
                return None
            if known:
                boots.append(sum(known))
        if not boots:
            return None
        # A boot is not divided among guests.
        left = max(sum(boots) / min(self._jobs(), len(boots)), max(boots)) - (self._clock() - self._last)
        return left if left > 0 else None

    def text(self) -> str:
        """``about 40 s left``; empty if unknown."""
        seconds = self.seconds()
        return "" if seconds is None else f"about {rounded(seconds)} left"


def rounded(seconds: float) -> str:
    """A readable duration: seconds below two minutes, minutes below two hours, else hours."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600)} h"


class ProgressListener:
    """Is told a run's progress, and drops it: a display overrides what it shows. The methods must not raise."""

    def begin(self, run: str, plan: Plan, done: int, left: TimeLeft) -> None:
        """A run begins, or resumes with ``done`` cells finished."""

    def guest_starts(self, guest: Guest) -> None:
        """From a boot's thread: a guest is about to start."""

    def say(self, text: str) -> None:
        """Something that takes noticeable time begins: a download, a build, a boot."""

    def worker_says(self, worker: str, text: str) -> None:
        """The same on a worker of a fleet."""

    def warn(self, text: str) -> None:
        """Something was built with warnings: several lines, once for each boot that needs it."""

    def cell_begins(self, cell_id: str) -> None:
        """A cell is being measured."""

    def cell_ends(self, record: CellRecord) -> None:
        """A cell's outcome is stored."""


class RunJournal:
    """Receives the events of all boots, compares records with those of other cells, and stores them."""

    def __init__(
        self,
        entry: RunEntry,
        store: Store,
        listener: ProgressListener,
        provenance: Provenance,
        plan: Plan,
        kinds: KindRegistry[BenchmarkKind],
    ) -> None:
        self.entry = entry
        self._store, self._listener, self._provenance = store, listener, provenance
        self._kinds: Mapping[str, BenchmarkKind] = {
            cell.id: kinds.named(boot.kind) for boot in plan.boots for cell in boot.cells
        }
        self._cells: Mapping[str, Cell[Any]] = {cell.id: cell for cell in plan.cells}
        self._outcomes = {record.id: record for record in store.load_run(entry.id).cells}
        self._waiting: dict[str, CellRecord] = {}

    def take(self, event: Event, job: Job) -> None:
        """Record an event of a boot. Raises UsageError if a guest differs from what the run began with."""
        match event:
            case Progress(text, worker):
                if worker:
                    self._listener.worker_says(worker, text)
                else:
                    self._listener.say(text)
            case CellBegan(cell):
                self._listener.cell_begins(cell)
            case GuestBooted():
                with storage_faults(self.entry.directory):
                    self._provenance.boot(event, job.name, job.artifacts)
            case CellRecorded(record, is_compared):
                if is_compared:
                    self._end(record)
                else:
                    self._waiting[record.id] = record
                self._store_complete()

    def _store_complete(self) -> None:
        """Store every record whose comparison partners are complete; storing one may complete others."""
        while complete := [record for record in self._waiting.values() if not self._missing(record)]:
            for record in complete:
                del self._waiting[record.id]
                self._end(compared(self._kinds[record.id], self._cells[record.id], record, self._outcomes))

    def _missing(self, record: CellRecord) -> bool:
        # With --only or --resume, the plan may lack a cell that the run has.
        compared = self._cells[record.id].compared_with
        return any(cell_id in self._cells and cell_id not in self._outcomes for cell_id in compared)

    def _end(self, record: CellRecord) -> None:
        self._store.record(self.entry.id, record)
        self._outcomes[record.id] = record
        self._listener.cell_ends(record)


_EXPERIMENT_FILE = "experiment.yaml"


@dataclass(frozen=True)
class PreparedPlan:
    """A plan of which everything is fetched and built, by boot; ``steps`` are those of the preparation."""

    experiment: Experiment
    plan: Plan
    artifacts: Mapping[Boot, BootArtifacts]
    steps: Sequence[str] = ()

    @cached_property
    def content(self) -> str:
        """A key of all that decides the plan's numbers: plans of equal keys have equal counts.

        The experiment and its cells; of each boot the kernel, the modules that it loads, its own and the user's, the
        programs, the image; what does not build, with the reason; QEMU and this version.
        """
        heading = self.experiment.heading.model_copy(update={"name": "", "description": None})
        boots = [
            {"cells": [cell.id for cell in boot.cells], "keys": artifacts.keys, "refused": self._refused(artifacts)}
            for boot, artifacts in self.artifacts.items()
        ]
        described = replace(self.experiment, heading=heading).digest()
        return digest({"experiment": described, "boots": boots, "qemu": qemu_digests(), "lab": __version__})

    @cached_property
    def broken(self) -> frozenset[str]:
        """The cells whose code does not compile or link: they fail in the same way every time."""
        refused = (self._refused(artifacts) for artifacts in self.artifacts.values())
        return frozenset(
            cell
            for pairs in refused
            for cell, (status, reason) in pairs.items()
            if status == "failed" and is_of_code(reason)
        )

    @staticmethod
    def _refused(artifacts: BootArtifacts) -> Mapping[str, tuple[str, str]]:
        """Status and reason of the cells that have no number before a guest starts, by id."""
        cells = artifacts.cells.items()
        return {id_: (prepared.status, prepared.reason) for id_, prepared in cells if isinstance(prepared, Refused)}


ExecutorMaker = Callable[[BuildContext, ProgressListener], AbstractContextManager[Executor]]
"""Makes the executor of one run, which exists as long as the context lasts."""


def local_executor(jobs: int) -> ExecutorMaker:
    """Makes an executor on this machine for ``jobs`` boots in parallel."""
    return lambda context, listener: nullcontext(LocalExecutor(context, jobs, listener.guest_starts))


one_by_one = local_executor(1)


@dataclass(frozen=True)
class Runner:
    """What a run works with: builder of artifacts, store of results, progress display, and kinds.

    ``executor`` makes the executor of its boots. With ``keep_events``, recorded events are kept as CSV. With ``fresh``,
    all guests are booted.
    """

    context: BuildContext
    store: Store
    listener: ProgressListener
    kinds: KindRegistry[BenchmarkKind]
    executor: ExecutorMaker = one_by_one
    keep_events: bool = False
    fresh: bool = False

    def prepared(self, experiment: Experiment, plan: Plan) -> PreparedPlan:
        """Check a plan, and fetch and build what it needs. Nothing is recorded."""
        self.store.check_writable()
        steps: list[str] = []
        with step_echo(steps.append):
            check_plan(experiment, plan, lambda name: ready_kernel(self.context, kernel_spec(name)))
            return PreparedPlan(experiment, plan, self._prepare(plan.boots), steps)

    def run(
        self, experiment: Experiment, plan: Plan, directory: Path | None, prepared: PreparedPlan | None = None
    ) -> RunEntry:
        """Start a new run in ``directory`` or beside the store; returns when every cell has an outcome.

        Problems of this host and failed downloads show before the run begins: then nothing is recorded. The plan may be
        ``prepared`` already.
        """
        facts = host_facts(self.context)
        prepared = prepared or self.prepared(experiment, plan)
        artifacts = prepared.artifacts
        with self.executor(self.context, self.listener) as executor:
            entry = self.store.begin_run(
                experiment.name,
                [cell.id for cell in plan.cells],
                digest=experiment.digest(),
                provenance=facts,
                directory=directory,
            )
            with self.store.working_on(entry.id):
                try:
                    _prepare_directory(entry, experiment)
                    with storage_faults(entry.directory):
                        lines = ("# before the run", *prepared.steps)
                        (entry.directory / LOG_NAME).write_text("".join(f"{line}\n" for line in lines))
                except BaseException:
                    self.store.forget_run(entry.id)
                    raise
                self._finish(entry, plan, artifacts, facts, executor)
        return self.store.entry(entry.id)

    def resume(self, entry: RunEntry, experiment: Experiment, plan: Plan) -> RunEntry:
        """Resume a run at its first unfinished cell. Raises UsageError if another process is working on it."""
        with self.executor(self.context, self.listener) as executor, self.store.working_on(entry.id):
            facts = host_facts(self.context)
            unfinished = set(self.store.unfinished_cells(entry.id))
            boots = [boot for boot in plan.boots if unfinished & {cell.id for cell in boot.cells}]
            artifacts = self._prepare(boots)
            _prepare_directory(entry, experiment)
            self._finish(entry, plan, artifacts, facts, executor)
        return self.store.entry(entry.id)

    def _prepare(self, boots: Iterable[Boot]) -> dict[Boot, BootArtifacts]:
        return {boot: prepare(self.context, self.kinds.named(boot.kind), boot) for boot in boots}

    def _finish(
        self,
        entry: RunEntry,
        plan: Plan,
        artifacts: Mapping[Boot, BootArtifacts],
        facts: dict[str, object],
        executor: Executor,
    ) -> None:
        with storage_faults(entry.directory):
            provenance = Provenance(entry.directory)
            provenance.check_sources(artifacts.values())
            provenance.session(facts)
        self.store.resume_run(entry.id)
        unfinished = set(self.store.unfinished_cells(entry.id))
        left = TimeLeft(plan, unfinished, durations(self.store, entry.experiment), lambda: executor.jobs)
        self.listener.begin(entry.id, plan, sum(cell.id not in unfinished for cell in plan.cells), left)
        journal = RunJournal(entry, self.store, self.listener, provenance, plan, self.kinds)
        # The worker that measured the run's times so far, empty for this machine; None if there are none.
        timed = (cell for cell in self.store.load_run(entry.id).cells if cell.clock == "wall" and cell.status == "ok")
        timed_on = next((cell.worker or "" for cell in timed), None)
        jobs: list[Job] = []
        with step_log(entry.directory / LOG_NAME):
            try:
                for number, boot in enumerate(plan.boots, start=1):
                    cells = tuple(cell for cell in boot.cells if cell.id in unfinished)
                    if cells:
                        task = BootTask(
                            kind=self.kinds.named(boot.kind),
                            boot=boot,
                            cells=cells,
                            directory=entry.directory / f"boot{number}",
                            keep_events=self.keep_events,
                            fresh=self.fresh,
                        )
                        jobs.append(Job(task, artifacts[boot], timed_on if boot.clock == "wall" else None))
                        executor.submit(jobs[-1])
                with closing(executor.events()) as events:
                    for job, event in events:
                        if isinstance(event, JobEnded):
                            _collect(job, entry)
                        else:
                            journal.take(event, job)
                self._keep_lines(entry, artifacts)
            except BaseException:
                with suppress(LabError):  # on a full disk this fails too: the first error counts
                    for job in jobs:
                        _collect(job, entry)
                    self._end(entry)
                raise
            self._end(entry)

    def _keep_lines(self, entry: RunEntry, artifacts: Mapping[Boot, BootArtifacts]) -> None:
        cells = [cell for cell in self.store.load_run(entry.id).cells if cell.profile is not None]
        from orchestrator.profile.lines.kept_lines import keep_lines  # reads debug information

        kernels = {
            artifact.kernel.spec.name: artifact.kernel
            for artifact in artifacts.values()
            if artifact.kernel.spec.tree is not None
        }
        for name, kernel in kernels.items():
            keep_lines(self.context, entry.directory, kernel, [cell for cell in cells if cell.kernel == name])

    def _end(self, entry: RunEntry) -> None:
        # A complete run has its results file: one that is killed before that is resumed.
        write_results(entry.directory, self.store.load_run(entry.id))
        # With --only, a resumed run may still be incomplete.
        self.store.finish_run(entry.id, "interrupted" if self.store.unfinished_cells(entry.id) else "complete")


def _prepare_directory(entry: RunEntry, experiment: Experiment) -> None:
    """Write what identifies the run and its experiment, if missing: a process may be killed before it has."""
    prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=entry.experiment))
    file = entry.directory / _EXPERIMENT_FILE
    if not file.exists():
        with storage_faults(file):
            write_whole(file, experiment.resolved_yaml())


def _collect(job: Job, entry: RunEntry) -> None:
    """Move a boot's files for each cell, events and profiles, to the run's folder."""
    for folder in (EVENTS_FOLDER, PROFILES_FOLDER):
        boots, runs = job.task.directory / folder, entry.directory / folder
        files = list(boots.glob("*"))
        with storage_faults(runs):
            for file in files:
                runs.mkdir(exist_ok=True)
                file.replace(runs / file.name)
            if files:
                boots.rmdir()


def check_resumable(entry: RunEntry, experiment: Experiment, kinds: KindRegistry[BenchmarkKind]) -> None:
    """Raise UsageError if a run was started with another experiment file or other overrides."""
    path, digest = entry.directory / _EXPERIMENT_FILE, entry.digest
    with suppress(ConfigError):  # in the current spelling
        if digest != experiment.digest():
            digest = load_experiment(path, kinds, (), qemu_cpu_names).digest()
    if digest != experiment.digest():
        raise UsageError(
            f"run {entry.id} was started with another experiment file, or other --set values",
            where=str(entry.directory),
            hint=f"its own experiment is {path}; without --resume a new run begins",
        )


def check_same_cells(entry: RunEntry, unfinished: Iterable[str], plan: Plan) -> None:
    """Raise UsageError if a run lacks outcomes of cells that its experiment no longer has.

    Cells derived from a guest's answers depend on the kernel and on this version.
    """
    lost = sorted(set(unfinished) - {cell.id for cell in plan.cells})
    if lost:
        raise UsageError(
            f"run {entry.id} lacks cells that its experiment no longer has: {len(lost)}, {lost[0]} for one",
            where=str(entry.directory),
            hint="the kernel or this program has changed since; without --resume a new run begins",
        )
