# SPDX-License-Identifier: GPL-2.0-only
"""When is a worker's count believed? When a cell that both have measured counts the same here, to the instruction.

Each worker measures a calibration when it joins, and this machine measures one cell of each again at the end.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.artifacts.cache import BuildContext
from orchestrator.errors import HostError, LabError
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.experiment.table import KindRegistry
from orchestrator.files import ScratchFolder
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import qemu_cpu_names
from orchestrator.results.contract import PER_RUN, CellRecord
from orchestrator.run.boot import BenchmarkKind, BootTask, Event, Outcome, Session, prepare, run_boot
from orchestrator.run.crew import Job, Stopped

Counts = Mapping[str, tuple[str, tuple[float, ...]]]
"""By cell: its status and its samples."""


def counts(records: Iterable[CellRecord]) -> Counts:
    """What of some records has to be equal everywhere."""
    return {record.id: (record.status, tuple(record.samples)) for record in records}


def difference(here: Counts, there: Counts) -> str | None:
    """The first count that differs, as a part of a sentence; None where none does."""
    for id_, (status, samples) in here.items():
        other_status, other = there.get(id_, ("no outcome", ()))
        if (status, samples) != (other_status, other):
            return f"{id_} is {_shown(other_status, other)} there and {_shown(status, samples)} here"
    return None


def _shown(status: str, samples: Sequence[float]) -> str:
    return ", ".join(f"{one:.10g}" for one in samples[:4]) if samples else status


def checkable(records: Iterable[CellRecord]) -> list[CellRecord]:
    """The records by which a worker can be checked: exact ones, failures first, then as they were measured.

    The exact clock repeats a failure, too: a worker whose cells fail where this machine's do not is wrong.
    """
    exact = [
        one
        for one in records
        # Whole runs have timer ticks in them, which fall differently.
        if one.clock == "instructions" and one.metric != PER_RUN and one.status in ("ok", "failed")
    ]
    return sorted(exact, key=lambda one: one.status == "ok")


def calibration_job(context: BuildContext, kinds: KindRegistry[BenchmarkKind], jobs: Sequence[Job]) -> Job:
    """The calibration of a run, on the kernel and the CPU of its first exact boot, or of its first one.

    Raises HostError, BuildError where it cannot be prepared.
    """
    boots = [job.task.boot for job in jobs]
    like = next((boot for boot in boots if boot.clock == "instructions"), boots[0])
    overrides = [f"kernels.0={like.kernel}", f"machines.0.cpu={like.cpu}"]
    experiment = load_experiment(Path(__file__).with_name("calibration.yaml"), kinds, overrides, qemu_cpu_names)
    (boot,) = plan(experiment).boots
    artifacts = prepare(context, kinds.named(boot.kind), boot)
    task = BootTask(kinds.named(boot.kind), boot, boot.cells, artifacts.keys, Path("calibration"))
    return Job(task, artifacts)


def single_cell(job: Job, cell: str) -> Job:
    """The job of one cell of a job, to count it again."""
    (wanted,) = [one for one in job.task.boot.cells if one.id == cell]
    task = dataclasses.replace(job.task, cells=(wanted,), directory=Path("recount"), keep_events=False, guests=0)
    return dataclasses.replace(job, task=task)


def calibrated_here(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> Counts:
    """What this machine counts in the calibration's cells. Raises HostError where none has a number."""
    records = _records(context, job, watch)
    if not any(record.status == "ok" for record in records):
        why = next((record.reason for record in records if record.reason), "no reason is known")
        raise HostError("this machine cannot measure what its fleet is to be compared with", detail=why.splitlines())
    return counts(records)


def measured_here(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> Counts:
    """What this machine counts in the cells of a job, or that they fail; ``watch`` gets its guests before they run."""
    return counts(_records(context, job, watch))


def recounted(context: BuildContext, jobs: Sequence[Job], watch: Callable[[Guest], None]) -> list[Counts | LabError]:
    """The same of several jobs, as many at once as there are processors, or why one cannot be measured."""

    def measure(job: Job) -> Counts | LabError:
        try:
            return measured_here(context, job, watch)
        except LabError as error:
            return error

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(measure, jobs))


def _records(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> list[CellRecord]:
    records: list[CellRecord] = []

    def take(event: Event) -> None:
        if isinstance(event, Outcome):
            records.append(event.record)

    with ScratchFolder("orchestrator-calibration-") as folder:
        task = dataclasses.replace(job.task, directory=folder / job.name, guests=0)
        run_boot(Session(task, job.artifacts, context, take, watch))
    return records


class OwnGuests:
    """The guests in which the client counts for itself, in threads of the link's: they end with the run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guests: list[Guest] = []
        self._has_ended = False

    def watch(self, guest: Guest) -> None:
        """In a guest's thread, before it runs. Raises Stopped where the run has ended."""
        with self._lock:
            self._guests.append(guest)
            has_ended = self._has_ended
        if has_ended:
            raise Stopped

    def end(self) -> None:
        """End all of them; none begins any more."""
        with self._lock:
            self._has_ended = True
            guests = list(self._guests)
        for guest in guests:
            guest.abort()
