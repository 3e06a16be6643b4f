# SPDX-License-Identifier: GPL-2.0-only
"""One boot's cells, measured in as many guests as their failures cost.

A cell that fails costs its guest as well: the cells after it get a fresh one, so that nothing it left behind is
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.benchmarks.calls.measurement import measure_cell
from orchestrator.errors import BuildError, HostError, LabError, UnsupportedError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import Boot
from orchestrator.run.boot_artifacts import BootArtifacts
from orchestrator.run.coordinator import Coordinator
from orchestrator.run.journal import RunJournal
from orchestrator.run.outcome import without_number
from orchestrator.run.ready_guest import ReadyGuest, ready_guest

EVENTS_FOLDER = "events"


@dataclass
class BootWorker:
    """Measures ``cells`` of a boot; ``name`` is what its guests' logs begin with."""

    coordinator: Coordinator
    journal: RunJournal
    boot: Boot
    cells: Sequence[Cell]
    artifacts: BootArtifacts
    name: str
    keep_events: bool

    def measure(self) -> None:
        """Measure all cells; each has an outcome when this returns. Raises HostError and UsageError, which end runs."""
        waiting = list(self.cells)
        guests = 0
        while waiting:
            guests += 1
            name, guests = self.journal.guest_name(self.name, self.boot, guests)
            self.journal.say(f"booting {self.artifacts.kernel.spec.name} on {self.boot.cpu}")
            try:
                with ready_guest(self.artifacts, self.journal.entry.directory, name, self.coordinator.watch) as ready:
                    self.journal.booted(name, self.artifacts, ready.guest.command_line)
                    while waiting and self._measure_one(ready, waiting[0]):
                        waiting.pop(0)
                    if waiting:
                        waiting.pop(0)
            except LabError as error:
                if isinstance(error, HostError | UsageError):
                    raise
                # No guest to measure in, and a second try would end the same: the exact clock repeats everything.
                for cell in waiting:
                    self.journal.end(without_number(self.artifacts, cell, "failed", str(error)))
                return

    def _measure_one(self, ready: ReadyGuest, cell: Cell) -> bool:
        """Measure and store one cell; False when the guest should not be used any more."""
        self.journal.begin(cell)
        try:
            record = measure_cell(ready, cell, self.journal.baseline(cell), self._events_file(cell))
        except UnsupportedError as error:
            record = without_number(self.artifacts, cell, "unsupported", str(error))
        except HostError:
            raise
        except BuildError as error:
            # The guest has not been touched.
            self.journal.end(without_number(self.artifacts, cell, "failed", str(error)))
            return True
        except LabError as error:
            record = without_number(self.artifacts, cell, "failed", str(error))
        self.journal.end(record)
        return record.status != "failed"

    def _events_file(self, cell: Cell) -> Path | None:
        """Where a recording cell's events go; a cell's id may hold slashes, and nothing else that a name may not."""
        if not self.keep_events:
            return None
        return self.journal.entry.directory / EVENTS_FOLDER / f"{cell.id.replace('/', '.')}.csv"
