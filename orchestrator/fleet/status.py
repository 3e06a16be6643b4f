# SPDX-License-Identifier: GPL-2.0-only
"""The state of a fleet: its scheduler, its workers with their room, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.fleet.target import Target
from orchestrator.program import PROGRAM
from orchestrator.results.printed_json import Printed

if TYPE_CHECKING:  # they load Dask
    from orchestrator.fleet.link import Surveyed
    from orchestrator.fleet.worker import Answer


class WorkerVersions(Printed):
    """What a worker has installed."""

    project: str
    """This program's version."""
    code: str
    """Digest of the package's files: checkouts of one version may differ."""
    python: str
    """Python's release."""
    qemu: str
    """QEMU, as it names itself."""


class WorkerStatus(Printed):
    """A worker of the fleet."""

    name: str
    """Its name."""
    address: str
    """Its address."""
    host: str
    """Its host's name."""
    running: int
    """Running guests."""
    versions: WorkerVersions | None
    """What it has installed; None if it cannot work."""
    guests: int | None
    """Guests that it runs side by side."""
    memory_mib: int | None
    """Memory for all of them."""
    problem: str
    """Why a run refuses it, or what it lacks, and what to do; empty if all is well."""

    @classmethod
    def of(cls, worker: Surveyed) -> WorkerStatus:
        answer = worker.answer
        works = answer.versions is not None
        return cls(
            name=worker.name,
            address=worker.address,
            host=answer.host,
            running=worker.running,
            versions=answer.versions and WorkerVersions(**answer.versions.model_dump()),
            guests=answer.guests if works else None,
            memory_mib=answer.memory_mib if works else None,
            problem=_problem(answer),
        )


class FleetStatus(Printed):
    """A fleet as its scheduler knows it."""

    name: str | None
    """Its name; None for one that was not started on this host."""
    scheduler: str
    """The scheduler's address."""
    keeper: int | None
    """The process that supervises it on this host."""
    missing: Sequence[str]
    """Workers that it should have, and has not."""
    workers: Sequence[WorkerStatus]
    """The workers, in order of names."""

    @property
    def is_whole(self) -> bool:
        """Whether all expected workers are there, without problems."""
        return bool(self.workers) and not self.missing and not any(worker.problem for worker in self.workers)


def fleet_status(fleet: Target) -> FleetStatus:
    """Ask a fleet's scheduler and workers. Raises HostError if the scheduler does not answer."""
    from orchestrator.fleet.link import survey  # loads Dask

    state, workers = fleet.state, [WorkerStatus.of(surveyed) for surveyed in survey(fleet)]
    there = {worker.name for worker in workers}
    return FleetStatus(
        name=state and state.name,
        scheduler=fleet.address,
        keeper=state and state.keeper,
        missing=[] if state is None else [name for name in state.workers if name not in there],
        workers=workers,
    )


def _problem(answer: Answer) -> str:
    """Why a run would refuse a worker, or what the worker will lack, and what to do."""
    from orchestrator.fleet.worker import Versions  # loads Dask

    if answer.versions is None:
        return f"{answer.problem}: see `{PROGRAM} doctor` there"
    difference = Versions.here().difference(answer.versions)
    if difference is not None:
        return f"{difference}: runs refuse it; check out the same commit there, and install the same QEMU and Python"
    return answer.cache
