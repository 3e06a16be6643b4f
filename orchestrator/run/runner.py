# SPDX-License-Identifier: GPL-2.0-only
"""Runs a plan: its boots side by side or one after the other, each cell's outcome stored before the next begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.scaling.measurement import MassWorker
from orchestrator.benchmarks.system.measurement import MacroWorker
from orchestrator.errors import UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.file.experiment import AnyExperiment
from orchestrator.experiment.plan import Boot, Plan
from orchestrator.results.faults import storage_faults
from orchestrator.results.runs import RunIdentity, prepare_directory, write_results
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.boot_artifacts import BootArtifacts, gather
from orchestrator.run.boot_worker import BootWorker
from orchestrator.run.coordinator import Coordinator
from orchestrator.run.journal import RunJournal
from orchestrator.run.progress_listener import ProgressListener
from orchestrator.run.provenance import Provenance, host_facts


@dataclasses.dataclass(frozen=True)
class Runner:
    """What a run works with: the maker of artifacts, the store of results, and whoever watches.

    ``jobs`` guests are measured in side by side; with ``keep_events`` what recording handlers wrote is kept as CSV.
    """

    context: BuildContext
    store: Store
    listener: ProgressListener
    jobs: int = 1
    keep_events: bool = False

    def run(self, experiment: AnyExperiment, plan: Plan, directory: Path | None) -> RunEntry:
        """Begin a new run, in ``directory`` or beside the store. Returns it when every cell has an outcome.

        What cannot be fetched is known before the run begins: nothing is recorded then.
        """
        facts = host_facts(self.context)
        artifacts = self._gather(plan.boots)
        entry = self.store.begin_run(
            experiment.name,
            [cell.id for cell in plan.cells],
            digest=experiment.digest(),
            provenance=facts,
            directory=directory,
        )
        try:
            prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=entry.experiment))
            with storage_faults(entry.directory):
                (entry.directory / "experiment.yaml").write_text(experiment.resolved_yaml())
        except BaseException:
            self.store.forget_run(entry.id)
            raise
        return self._finish(entry, plan, artifacts, facts)

    def resume(self, entry: RunEntry, plan: Plan) -> RunEntry:
        """Go on with a run at its first unfinished cell."""
        facts = host_facts(self.context)
        unfinished = set(self.store.unfinished_cells(entry.id))
        boots = [boot for boot in plan.boots if unfinished & {cell.id for cell in boot.cells}]
        artifacts = self._gather(boots)
        prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=entry.experiment))
        return self._finish(entry, plan, artifacts, facts)

    def _gather(self, boots: Iterable[Boot]) -> dict[Boot, BootArtifacts]:
        return {boot: gather(self.context, boot) for boot in boots}

    def _finish(
        self, entry: RunEntry, plan: Plan, artifacts: Mapping[Boot, BootArtifacts], facts: dict[str, object]
    ) -> RunEntry:
        lock = FileLock(entry.directory / "run.lock")
        try:
            with lock.acquire(timeout=0):
                with storage_faults(entry.directory):
                    provenance = Provenance(entry.directory)
                    provenance.session(facts)
                self.store.resume_run(entry.id)
                self._work(entry, plan, artifacts, provenance)
        except Timeout:
            raise UsageError(f"another process is working on run {entry.id}", where=str(entry.directory)) from None
        return self.store.entry(entry.id)

    def _work(
        self, entry: RunEntry, plan: Plan, artifacts: Mapping[Boot, BootArtifacts], provenance: Provenance
    ) -> None:
        unfinished = set(self.store.unfinished_cells(entry.id))
        left = [cell.id for cell in plan.cells if cell.id in unfinished]
        self.listener.begin(entry.id, plan, len(plan.cells) - len(left))
        coordinator = Coordinator(self.jobs)
        journal = RunJournal(coordinator, entry, self.store, self.listener, provenance, plan)
        waiting = (
            (number, boot, [cell for cell in boot.cells if cell.id in unfinished])
            for number, boot in enumerate(plan.boots, start=1)
        )
        try:
            coordinator.serve(
                [
                    self._worker(coordinator, journal, boot, cells, artifacts[boot], f"boot{number}").measure
                    for number, boot, cells in waiting
                    if cells
                ]
            )
        finally:
            # With --only, a run that is gone on with may still not be at its end.
            self.store.finish_run(entry.id, "interrupted" if self.store.unfinished_cells(entry.id) else "complete")
            write_results(entry.directory, self.store.load_run(entry.id))

    def _worker(
        self,
        coordinator: Coordinator,
        journal: RunJournal,
        boot: Boot,
        cells: Sequence[Cell],
        artifacts: BootArtifacts,
        name: str,
    ) -> BootWorker | MassWorker | MacroWorker:
        if boot.cells[0].macro is not None:
            return MacroWorker(self.context, coordinator, journal, boot, cells, artifacts, name)
        if boot.cells[0].size is not None:
            return MassWorker(self.context, coordinator, journal, boot, cells, artifacts, name)
        return BootWorker(coordinator, journal, boot, cells, artifacts, name, self.keep_events)


def check_resumable(entry: RunEntry, experiment: AnyExperiment) -> None:
    """Raise UsageError when a run was begun with another experiment file or other overrides."""
    if entry.digest != experiment.digest():
        raise UsageError(
            f"run {entry.id} was begun with another experiment file, or other --set values",
            where=str(entry.directory),
            hint=f"its own experiment is {entry.directory / 'experiment.yaml'}; without --resume a new run begins",
        )
