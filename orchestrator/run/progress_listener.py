# SPDX-License-Identifier: GPL-2.0-only
"""What a progress display is called with during a run."""

from __future__ import annotations

from typing import Protocol

from orchestrator.experiment.plan import Plan
from orchestrator.guest.guest import Guest
from orchestrator.results.contract import CellRecord
from orchestrator.run.time_left import TimeLeft


class ProgressListener(Protocol):
    """A run's progress display: a terminal, a log, or none. Its methods must not raise."""

    def begin(self, run: str, plan: Plan, done: int, left: TimeLeft) -> None:
        """A run begins, or goes on with ``done`` of its cells finished."""

    def guest_starts(self, guest: Guest) -> None:
        """From a boot's thread: a guest is about to start."""

    def say(self, text: str) -> None:
        """Something that takes a person's time begins: a download, a build, a boot."""

    def worker_says(self, worker: str, text: str) -> None:
        """The same on a worker of a fleet."""

    def warn(self, text: str) -> None:
        """Something was built with warnings: several lines, once for each boot that needs it."""

    def cell_begins(self, cell_id: str) -> None:
        """A cell is being measured."""

    def cell_ends(self, record: CellRecord) -> None:
        """A cell has an outcome, and it is stored."""

    def cell_withdrawn(self, cell_id: str) -> None:
        """A cell's outcome is not believed any more, and is no longer stored."""
