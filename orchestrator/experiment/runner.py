# SPDX-License-Identifier: GPL-2.0-only
"""Runs a plan: its boots side by side or one after the other, each cell's outcome stored before the next begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.artifacts.workshop import Workshop
from orchestrator.errors import UsageError
from orchestrator.experiment.boot_worker import BootWorker
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.desk import Desk
from orchestrator.experiment.macro_worker import MacroWorker
from orchestrator.experiment.mass_worker import MassWorker
from orchestrator.experiment.plan import Boot, Plan
from orchestrator.experiment.provenance import Provenance, host_facts
from orchestrator.experiment.run_book import RunBook
from orchestrator.experiment.schema import AnyExperiment
from orchestrator.experiment.supplies import Supplies, gather
from orchestrator.experiment.watcher import Watcher
from orchestrator.results.contract import RunRecord
from orchestrator.results.faults import storage_faults
from orchestrator.results.runs import RunIdentity, prepare_directory, write_results
from orchestrator.results.store import RunEntry, Store


@dataclasses.dataclass(frozen=True)
class Runner:
    """What a run works with: the maker of artifacts, the store of results, and whoever watches.

    ``jobs`` guests are measured in side by side; with ``keep_events`` what recording handlers wrote is kept as CSV.
    """

    workshop: Workshop
    store: Store
    watcher: Watcher
    jobs: int = 1
    keep_events: bool = False

    def run(self, experiment: AnyExperiment, plan: Plan, directory: Path | None) -> RunEntry:
        """Begin a new run, in ``directory`` or beside the store. Returns it when every cell has an outcome.

        What cannot be fetched is known before the run begins: nothing is recorded then.
        """
        facts = host_facts(self.workshop)
        supplies = self._gather(plan.boots)
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
        return self._finish(entry, plan, supplies, facts)

    def resume(self, entry: RunEntry, plan: Plan) -> RunEntry:
        """Go on with a run at its first unfinished cell."""
        facts = host_facts(self.workshop)
        unfinished = set(self.store.unfinished_cells(entry.id))
        boots = [boot for boot in plan.boots if unfinished & {cell.id for cell in boot.cells}]
        supplies = self._gather(boots)
        prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=entry.experiment))
        return self._finish(entry, plan, supplies, facts)

    def _gather(self, boots: Iterable[Boot]) -> dict[Boot, Supplies]:
        return {boot: gather(self.workshop, boot) for boot in boots}

    def _finish(
        self, entry: RunEntry, plan: Plan, supplies: Mapping[Boot, Supplies], facts: dict[str, object]
    ) -> RunEntry:
        lock = FileLock(entry.directory / "run.lock")
        try:
            with lock.acquire(timeout=0):
                with storage_faults(entry.directory):
                    provenance = Provenance(entry.directory)
                    provenance.session(facts)
                self.store.resume_run(entry.id)
                self._work(entry, plan, supplies, provenance)
        except Timeout:
            raise UsageError(f"another process is working on run {entry.id}", where=str(entry.directory)) from None
        return self.store.entry(entry.id)

    def _work(self, entry: RunEntry, plan: Plan, supplies: Mapping[Boot, Supplies], provenance: Provenance) -> None:
        unfinished = set(self.store.unfinished_cells(entry.id))
        left = [cell.id for cell in plan.cells if cell.id in unfinished]
        self.watcher.begin(entry.id, plan, len(plan.cells) - len(left))
        desk = Desk(self.jobs)
        book = RunBook(desk, entry, self.store, self.watcher, provenance, plan)
        waiting = (
            (number, boot, [cell for cell in boot.cells if cell.id in unfinished])
            for number, boot in enumerate(plan.boots, start=1)
        )
        try:
            desk.serve(
                [
                    self._worker(desk, book, boot, cells, supplies[boot], f"boot{number}").measure
                    for number, boot, cells in waiting
                    if cells
                ]
            )
        finally:
            # With --only, a run that is gone on with may still not be at its end.
            self.store.finish_run(entry.id, "interrupted" if self.store.unfinished_cells(entry.id) else "complete")
            write_results(entry.directory, self.store.load_run(entry.id))

    def _worker(
        self, desk: Desk, book: RunBook, boot: Boot, cells: Sequence[Cell], supplies: Supplies, name: str
    ) -> BootWorker | MassWorker | MacroWorker:
        if boot.cells[0].macro is not None:
            return MacroWorker(self.workshop, desk, book, boot, cells, supplies, name)
        if boot.cells[0].size is not None:
            return MassWorker(self.workshop, desk, book, boot, cells, supplies, name)
        return BootWorker(desk, book, boot, cells, supplies, name, self.keep_events)


def all_ok(record: RunRecord) -> bool:
    """Whether no cell failed and at least one has a number.

    A cell that this machine or kernel cannot have is no failure; a run of nothing else measured nothing.
    """
    states = {cell.status for cell in record.cells}
    return "failed" not in states and "ok" in states


def check_resumable(entry: RunEntry, experiment: AnyExperiment) -> None:
    """Raise UsageError when a run was begun with another experiment file or other overrides."""
    if entry.digest != experiment.digest():
        raise UsageError(
            f"run {entry.id} was begun with another experiment file, or other --set values",
            where=str(entry.directory),
            hint=f"its own experiment is {entry.directory / 'experiment.yaml'}; without --resume a new run begins",
        )
