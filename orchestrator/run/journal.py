# SPDX-License-Identifier: GPL-2.0-only
"""What is written down of a run while it goes on: outcomes, guests, progress, and the baselines known so far."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import Boot, Plan
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.boot_artifacts import BootArtifacts
from orchestrator.run.coordinator import Coordinator
from orchestrator.run.progress_listener import ProgressListener
from orchestrator.run.provenance import Provenance

_BaselineKey = tuple[object, ...]
_PATIENCE = 0.2
"""Seconds between two looks at what another worker does for minutes."""


class RunJournal:
    """Used by workers; every entry is made at the coordinator, in the thread that the store belongs to."""

    def __init__(
        self,
        coordinator: Coordinator,
        entry: RunEntry,
        store: Store,
        listener: ProgressListener,
        provenance: Provenance,
        plan: Plan,
    ) -> None:
        self.entry = entry
        self._coordinator = coordinator
        self._store = store
        self._listener = listener
        self._provenance = provenance
        self._cells: Mapping[str, Cell] = {cell.id: cell for cell in plan.cells}
        self._baselines: dict[_BaselineKey, float] = {}
        self._outcomes: dict[str, CellRecord] = {}
        for record in store.load_run(entry.id).cells:
            self._note(record)

    def say(self, text: str) -> None:
        """Something that takes a person's time begins."""
        self._coordinator.do(lambda: self._listener.say(text))

    def booted(
        self, name: str, artifacts: BootArtifacts, argv: tuple[str, ...], work: Mapping[str, str] | None = None
    ) -> None:
        """A guest runs: keep what it is made of, and what the work that came with it is.

        Raises UsageError where that is not what the run began with.
        """

        def write() -> None:
            with storage_faults(self.entry.directory):
                self._provenance.boot(name, artifacts, argv, work)

        self._coordinator.do(write)

    def guest_name(self, prefix: str, boot: Boot, number: int) -> tuple[str, int]:
        """A guest's name, which its logs have too, and its number, ``number`` or the next that is free.

        A run that is gone on with keeps the logs of its earlier guests.
        """
        while True:
            name = f"{prefix}-guest{number}-{boot.cpu}-{kernel_spec(boot.kernel).name}"
            if not (self.entry.directory / f"{name}.console").exists():
                return name, number
            number += 1

    def begin(self, cell: Cell) -> None:
        """A cell is being measured."""
        self._coordinator.do(lambda: self._listener.cell_begins(cell.id))

    def end(self, record: CellRecord) -> None:
        """A cell has an outcome; it is stored when this returns."""

        def write() -> None:
            self._store.record(self.entry.id, record)
            self._note(record)
            self._listener.cell_ends(record)

        self._coordinator.do(write)

    def baseline(self, cell: Cell) -> float | None:
        """The cost without a probe; on the exact clock it is the same in every boot of the machine."""
        return self._baselines.get(_key(cell))

    def wait_for(self, ids: Sequence[str]) -> list[CellRecord]:
        """The outcomes of cells that other workers have begun before this one; of such as are in this run."""
        while True:
            waiting = [id_ for id_ in ids if id_ in self._cells and id_ not in self._outcomes]
            if not waiting:
                return [self._outcomes[id_] for id_ in ids if id_ in self._outcomes]
            self._coordinator.do(lambda: None)  # where the run ends, so does this
            time.sleep(_PATIENCE)

    def _note(self, record: CellRecord) -> None:
        self._outcomes[record.id] = record
        cell = self._cells.get(record.id)
        if cell is not None and cell.probe == BASELINE and record.value is not None:
            self._baselines[_key(cell)] = record.value


def _key(cell: Cell) -> _BaselineKey:
    return (cell.table, cell.cpu, cell.smp, cell.memory_mib, cell.kernel, cell.handler, cell.point, cell.image)
