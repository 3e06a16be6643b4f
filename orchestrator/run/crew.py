# SPDX-License-Identifier: GPL-2.0-only
"""The crew of a run: who does its boots, and the events that report them. All else is the same for every crew.

A crew touches neither store nor provenance nor progress display: the run that reads its events is the only writer.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from orchestrator.run.artifacts import BootArtifacts
from orchestrator.run.boot import BootTask
from orchestrator.run.events import Event


@dataclass(frozen=True)
class Job:
    """A boot for a crew to do, and what was prepared for it here.

    ``timed_on`` is the worker that has measured times of the run before, empty for this machine; None where nothing was
    measured by the wall clock yet, or nothing of the boot's is to be.
    """

    task: BootTask
    artifacts: BootArtifacts
    timed_on: str | None = None

    @property
    def name(self) -> str:
        """The boot's name in its run, which is that of its folder: ``boot3``."""
        return self.task.directory.name


@dataclass(frozen=True)
class JobEnded:
    """A boot has come to its end: what it leaves is in its directory. Events follow only where some are withdrawn."""


@dataclass(frozen=True)
class Withdrawn:
    """Outcomes of a job that are not believed any more, by their cells' ids: they will be measured again."""

    cells: tuple[str, ...]


CrewEvent = Event | JobEnded | Withdrawn


class Crew(Protocol):
    """Does jobs, several at a time, in the order in which they were submitted where that is possible."""

    @property
    def jobs(self) -> int:
        """How many boots it can do side by side."""

    def submit(self, job: Job) -> None:
        """Take on a job; it begins when its events are asked for."""

    def events(self) -> Generator[tuple[Job, CrewEvent], None, None]:
        """What the jobs report, until all have ended. Closing it ends them at once, and so does what it raises.

        Signals that interrupt the process are raised here. Raises the first error that ends a run: HostError,
        UsageError and the like.
        """

    def cancel(self) -> None:
        """End all jobs, with their guests, from any thread: ``events`` then raises Cancelled."""


class Cancelled(Exception):
    """The crew's jobs were ended before their time."""
