# SPDX-License-Identifier: GPL-2.0-only
"""What is written down of a run while it goes on, by the thread that reads a crew's events: outcomes and guests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.experiment.cell import Cell
from orchestrator.experiment.kind import KindRegistry
from orchestrator.experiment.plan import Plan
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.comparison import compared
from orchestrator.run.crew import Job, Withdrawn
from orchestrator.run.events import CellBegan, Event, GuestBooted, Outcome, Progress
from orchestrator.run.kind import BenchmarkKind
from orchestrator.run.progress_listener import ProgressListener
from orchestrator.run.provenance import Provenance


class RunJournal:
    """Takes the events of all boots, compares records with those of other cells, and stores them."""

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
        self._store = store
        self._listener = listener
        self._provenance = provenance
        self._kinds: Mapping[str, BenchmarkKind] = {
            cell.id: kinds.named(boot.kind) for boot in plan.boots for cell in boot.cells
        }
        self._cells: Mapping[str, Cell[Any]] = {cell.id: cell for cell in plan.cells}
        self._outcomes = {record.id: record for record in store.load_run(entry.id).cells}
        self._waiting: dict[str, CellRecord] = {}

    def take(self, event: Event | Withdrawn, job: Job) -> None:
        """Write down an event of a boot. Raises UsageError where a guest is not what the run began with."""
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
            case Outcome(record, is_compared):
                if is_compared:
                    self._end(record)
                else:
                    self._waiting[record.id] = record
                self._store_complete()
            case Withdrawn(cells):
                self._withdraw(set(cells))

    def _withdraw(self, cells: set[str]) -> None:
        for id_ in sorted(cells):
            self._waiting.pop(id_, None)
            if self._outcomes.pop(id_, None) is not None:
                self._store.withdraw(self.entry.id, id_)
                self._listener.cell_withdrawn(id_)

    def _store_complete(self) -> None:
        """Store every record whose cell is compared with nothing that is still missing; it may complete others."""
        complete = [record for record in self._waiting.values() if not self._missing(record)]
        while complete:
            for record in complete:
                del self._waiting[record.id]
                self._end(compared(self._kinds[record.id], self._cells[record.id], record, self._outcomes))
            complete = [record for record in self._waiting.values() if not self._missing(record)]

    def _missing(self, record: CellRecord) -> bool:
        # With --only or --resume, the plan may lack a cell that the run has.
        others = self._cells[record.id].compared_with
        return any(other in self._cells and other not in self._outcomes for other in others)

    def _end(self, record: CellRecord) -> None:
        self._store.record(self.entry.id, record)
        self._outcomes[record.id] = record
        self._listener.cell_ends(record)
