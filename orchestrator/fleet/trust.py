# SPDX-License-Identifier: GPL-2.0-only
"""Verification of workers: a cell that both have measured must count the same here, to the instruction.

Each worker measures a calibration when it joins, and this machine measures one cell of each again at the end.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.errors import HostError, LabError
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.kind_registry import KindRegistry
from orchestrator.experiment.plan import plan
from orchestrator.files import ScratchFolder
from orchestrator.guest.guest import Guest
from orchestrator.guest.qemu_facts import qemu_cpu_names
from orchestrator.results.contract import PER_RUN, CellRecord
from orchestrator.run.benchmark_kind import BenchmarkKind, BootTask, Session
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import CellRecorded, Event
from orchestrator.run.boot_preparation import prepare
from orchestrator.run.executor import Job

Counts = Mapping[str, tuple[str, tuple[float, ...]]]
"""By cell: its status and its samples."""


def counts(records: Iterable[CellRecord]) -> Counts:
    """The parts of records that must be equal everywhere."""
    return {record.id: (record.status, tuple(record.samples)) for record in records}


def difference(here: Counts, there: Counts) -> str | None:
    """The first differing count, worded as part of a sentence; None if all agree."""
    for id_, (status, samples) in here.items():
        status_there, samples_there = there.get(id_, ("no outcome", ()))
        if (status, samples) != (status_there, samples_there):
            return f"{id_} is {_shown(status_there, samples_there)} there and {_shown(status, samples)} here"
    return None


def _shown(status: str, samples: Sequence[float]) -> str:
    return ", ".join(f"{sample:.10g}" for sample in samples[:4]) if samples else status


def exact_records(records: Iterable[CellRecord]) -> list[CellRecord]:
    """The records that can verify a worker: those on the exact clock, failures first, otherwise in order.

    The exact clock repeats failures as well: a worker whose cells fail only there is faulty.
    """
    exact = [
        record
        for record in records
        # Whole runs contain timer ticks, which fall differently.
        if record.clock == "instructions" and record.metric != PER_RUN and record.status in ("ok", "failed")
    ]
    return sorted(exact, key=lambda cell: cell.status == "ok")


def calibration_job(context: BuildContext, kinds: KindRegistry[BenchmarkKind], jobs: Sequence[Job]) -> Job:
    """The calibration of a run, with the kernel and CPU of its first boot on the exact clock, or its first boot.

    Raises HostError, BuildError if it cannot be prepared.
    """
    boots = [job.task.boot for job in jobs]
    like = next((boot for boot in boots if boot.clock == "instructions"), boots[0]).guest
    overrides = [f"kernels.0={like.kernel}", f"machines.0.cpu={like.cpu}"]
    experiment = load_experiment(Path(__file__).with_name("calibration.yaml"), kinds, overrides, qemu_cpu_names)
    (boot,) = plan(experiment).boots
    artifacts = prepare(context, kinds.named(boot.kind), boot)
    task = BootTask(kinds.named(boot.kind), boot, boot.cells, Path("calibration"))
    return Job(task, artifacts)


def single_cell(job: Job, cell: str) -> Job:
    """A job reduced to one of its cells, to count that again."""
    (counted,) = [candidate for candidate in job.task.boot.cells if candidate.id == cell]
    task = dataclasses.replace(job.task, cells=(counted,), directory=Path("recount"), keep_events=False, guests=0)
    return dataclasses.replace(job, task=task)


def calibrated_here(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> Counts:
    """What this machine counts in the calibration's cells. Raises HostError if none has a number."""
    records = measured_here(context, job, watch)
    if not any(record.status == "ok" for record in records):
        why = next((record.reason for record in records if record.reason), "no reason is known")
        raise HostError("this machine cannot measure what its fleet is to be compared with", detail=why.splitlines())
    return counts(records)


def recounted(context: BuildContext, jobs: Sequence[Job], watch: Callable[[Guest], None]) -> list[Counts | LabError]:
    """What this machine counts in the cells of jobs, or why not; as many in parallel as there are processors.

    ``watch`` gets the guests before they run.
    """

    def measure(job: Job) -> Counts | LabError:
        try:
            return counts(measured_here(context, job, watch))
        except LabError as error:
            return error

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(measure, jobs))


def measured_here(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> list[CellRecord]:
    """The records of a job's cells, measured on this machine. Raises LabError."""
    records: list[CellRecord] = []

    def take(event: Event) -> None:
        if isinstance(event, CellRecorded):
            records.append(event.record)

    with ScratchFolder("orchestrator-calibration-") as folder:
        task = dataclasses.replace(job.task, directory=folder / job.name, guests=0)
        run_boot(Session(task, job.artifacts, context, take, watch))
    return records
