# SPDX-License-Identifier: GPL-2.0-only
"""Runs a plan: its boots side by side or one after the other, each outcome stored when it is complete."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import Any

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import ready_kernel
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import ConfigError, LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file.loading import load_resolved
from orchestrator.experiment.kind import KindRegistry
from orchestrator.experiment.plan import Boot, Plan
from orchestrator.guest.emulator import qemu_cpu_names
from orchestrator.results.contract import RunRecord
from orchestrator.results.durations import durations
from orchestrator.results.faults import storage_faults
from orchestrator.results.runs import RunIdentity, prepare_directory, write_results
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.artifacts import BootArtifacts, prepare
from orchestrator.run.boot import EVENTS_FOLDER, PROFILES_FOLDER, BootTask
from orchestrator.run.crew import Crew, Job, JobEnded
from orchestrator.run.journal import RunJournal
from orchestrator.run.kind import BenchmarkKind
from orchestrator.run.local_crew import LocalCrew
from orchestrator.run.plan_check import check_plan
from orchestrator.run.progress_listener import ProgressListener
from orchestrator.run.provenance import Provenance, host_facts
from orchestrator.run.time_left import TimeLeft
from orchestrator.steps import LOG_NAME, step_echo, step_log
from orchestrator.whole_file import write_whole

_EXPERIMENT_FILE = "experiment.yaml"

CrewMaker = Callable[[BuildContext, ProgressListener], AbstractContextManager[Crew]]
"""Makes the crew of one run, which is there as long as the context lasts."""


def local_crew(jobs: int) -> CrewMaker:
    """What makes a crew of this machine, which does this number of boots side by side."""

    def make(context: BuildContext, listener: ProgressListener) -> AbstractContextManager[Crew]:
        return nullcontext(LocalCrew(context, jobs, listener.guest_starts))

    return make


one_by_one = local_crew(1)


@dataclasses.dataclass(frozen=True)
class Runner:
    """What a run works with: the maker of artifacts, the store of results, the progress display, the kinds there are.

    ``crew`` makes who does the boots. With ``keep_events`` what recording handlers wrote is kept as CSV. With ``fresh``
    all guests are booted.
    """

    context: BuildContext
    store: Store
    listener: ProgressListener
    kinds: KindRegistry[BenchmarkKind]
    crew: CrewMaker = one_by_one
    keep_events: bool = False
    fresh: bool = False

    def run(self, experiment: Experiment, plan: Plan, directory: Path | None) -> RunEntry:
        """Begin a new run, in ``directory`` or beside the store. Returns it when every cell has an outcome.

        What is wrong on this host and what cannot be fetched is known before the run begins: nothing is recorded then.
        """
        self.store.check_writable()
        facts = host_facts(self.context)
        steps: list[str] = []
        with step_echo(steps.append):
            check_plan(experiment, plan, lambda name: ready_kernel(self.context, kernel_spec(name)))
            artifacts = self._prepare(plan.boots)
        with self.crew(self.context, self.listener) as crew:
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
                        lines = ("# before the run", *steps)
                        (entry.directory / LOG_NAME).write_text("".join(f"{line}\n" for line in lines))
                except BaseException:
                    self.store.forget_run(entry.id)
                    raise
                self._finish(entry, plan, artifacts, facts, crew)
        return self.store.entry(entry.id)

    def resume(self, entry: RunEntry, experiment: Experiment, plan: Plan) -> RunEntry:
        """Go on with a run at its first unfinished cell. Raises UsageError where another process works on it."""
        with self.crew(self.context, self.listener) as crew, self.store.working_on(entry.id):
            facts = host_facts(self.context)
            unfinished = set(self.store.unfinished_cells(entry.id))
            boots = [boot for boot in plan.boots if unfinished & {cell.id for cell in boot.cells}]
            artifacts = self._prepare(boots)
            _prepare_directory(entry, experiment)
            self._finish(entry, plan, artifacts, facts, crew)
        return self.store.entry(entry.id)

    def _prepare(self, boots: Iterable[Boot]) -> dict[Boot, BootArtifacts]:
        return {boot: prepare(self.context, self.kinds.named(boot.kind), boot) for boot in boots}

    def _finish(
        self,
        entry: RunEntry,
        plan: Plan,
        artifacts: Mapping[Boot, BootArtifacts],
        facts: dict[str, object],
        crew: Crew,
    ) -> None:
        with storage_faults(entry.directory):
            provenance = Provenance(entry.directory)
            provenance.check_sources(artifacts.values())
            provenance.session(facts)
        self.store.resume_run(entry.id)
        with step_log(entry.directory / LOG_NAME):
            self._work(entry, plan, artifacts, provenance, crew)

    def _work(
        self,
        entry: RunEntry,
        plan: Plan,
        artifacts: Mapping[Boot, BootArtifacts],
        provenance: Provenance,
        crew: Crew,
    ) -> None:
        unfinished = set(self.store.unfinished_cells(entry.id))
        left = TimeLeft(plan, unfinished, durations(self.store, entry.experiment), lambda: crew.jobs)
        self.listener.begin(entry.id, plan, sum(cell.id not in unfinished for cell in plan.cells), left)
        journal = RunJournal(entry, self.store, self.listener, provenance, plan, self.kinds)
        timed_on = _timed_on(self.store.load_run(entry.id))
        jobs: list[Job] = []
        try:
            for number, boot in enumerate(plan.boots, start=1):
                cells = tuple(cell for cell in boot.cells if cell.id in unfinished)
                if cells:
                    task = self._task(entry, boot, cells, artifacts[boot], f"boot{number}")
                    jobs.append(Job(task, artifacts[boot], timed_on if boot.clock == "wall" else None))
                    crew.submit(jobs[-1])
            with closing(crew.events()) as events:
                for job, event in events:
                    if isinstance(event, JobEnded):
                        _collect_all(job, entry)
                    else:
                        journal.take(event, job)
        except BaseException:
            with suppress(LabError):  # on a full disk the end is not written either: the first error counts
                for job in jobs:
                    _collect_all(job, entry)
                self._end(entry)
            raise
        self._end(entry)

    def _end(self, entry: RunEntry) -> None:
        # A run that is complete has its results' file: one that is killed before is gone on with.
        write_results(entry.directory, self.store.load_run(entry.id))
        # With --only, a run that is gone on with may still not be at its end.
        self.store.finish_run(entry.id, "interrupted" if self.store.unfinished_cells(entry.id) else "complete")

    def _task(
        self, entry: RunEntry, boot: Boot, cells: tuple[Cell[Any], ...], artifacts: BootArtifacts, folder: str
    ) -> BootTask:
        return BootTask(
            kind=self.kinds.named(boot.kind),
            boot=boot,
            cells=cells,
            keys=artifacts.keys,
            directory=entry.directory / folder,
            keep_events=self.keep_events,
            fresh=self.fresh,
        )


def _prepare_directory(entry: RunEntry, experiment: Experiment) -> None:
    """Make what names the run and what it measures, where it is missing: a process may be killed before it has."""
    prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=entry.experiment))
    file = entry.directory / _EXPERIMENT_FILE
    if not file.exists():
        with storage_faults(file):
            write_whole(file, experiment.resolved_yaml())


def _timed_on(run: RunRecord) -> str | None:
    """The worker that has measured the run's times so far, empty for this machine; None where there are none."""
    return next((cell.worker or "" for cell in run.cells if cell.clock == "wall" and cell.status == "ok"), None)


def _collect_all(job: Job, entry: RunEntry) -> None:
    for folder in (EVENTS_FOLDER, PROFILES_FOLDER):
        _collect(job.task.directory / folder, entry.directory / folder)


def _collect(boots: Path, runs: Path) -> None:
    """Move what a boot left for each cell, events of recording handlers and profiles, to the run's own folder."""
    files = list(boots.glob("*"))
    with storage_faults(runs):
        for file in files:
            runs.mkdir(exist_ok=True)
            file.replace(runs / file.name)
        if files:
            boots.rmdir()


def check_resumable(entry: RunEntry, experiment: Experiment, kinds: KindRegistry[BenchmarkKind]) -> None:
    """Raise UsageError when a run was begun with another experiment file or other overrides."""
    if entry.digest != experiment.digest() and _begun_with(entry, kinds) != experiment.digest():
        raise UsageError(
            f"run {entry.id} was begun with another experiment file, or other --set values",
            where=str(entry.directory),
            hint=f"its own experiment is {entry.directory / _EXPERIMENT_FILE}; without --resume a new run begins",
        )


def check_same_cells(entry: RunEntry, unfinished: Iterable[str], plan: Plan) -> None:
    """Raise UsageError when a run lacks outcomes of cells that its experiment no longer has.

    Cells that were found out in a guest depend on the kernel and on this version.
    """
    lost = sorted(set(unfinished) - {cell.id for cell in plan.cells})
    if lost:
        raise UsageError(
            f"run {entry.id} lacks cells that its experiment no longer has: {len(lost)}, {lost[0]} for one",
            where=str(entry.directory),
            hint="the kernel or this program has changed since; without --resume a new run begins",
        )


def _begun_with(entry: RunEntry, kinds: KindRegistry[BenchmarkKind]) -> str | None:
    """The digest of the run's own experiment as it is spelled today; None where it cannot be read."""
    try:
        return load_resolved(entry.directory / _EXPERIMENT_FILE, kinds, qemu_cpu_names).digest()
    except ConfigError:
        return None
