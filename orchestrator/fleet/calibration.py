# SPDX-License-Identifier: GPL-2.0-only
"""The cells that a worker measures before it gets any of the run's, and what this machine counts in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.errors import HostError
from orchestrator.experiment.file.loading import load_experiment
from orchestrator.experiment.kind import KindRegistry
from orchestrator.experiment.plan import plan
from orchestrator.fleet.trust import Counts, counts
from orchestrator.guest.emulator import qemu_cpu_names
from orchestrator.guest.guest import Guest
from orchestrator.results.contract import CellRecord
from orchestrator.run.artifacts import prepare
from orchestrator.run.boot import BootTask, Session, run_boot
from orchestrator.run.crew import Job
from orchestrator.run.events import Event, Outcome
from orchestrator.run.kind import BenchmarkKind
from orchestrator.scratch import ScratchFolder


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


def _records(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> list[CellRecord]:
    records: list[CellRecord] = []

    def take(event: Event) -> None:
        if isinstance(event, Outcome):
            records.append(event.record)

    with ScratchFolder("orchestrator-calibration-") as folder:
        task = dataclasses.replace(job.task, directory=folder / job.name, guests=0)
        run_boot(Session(task, job.artifacts, context, take, watch))
    return records
