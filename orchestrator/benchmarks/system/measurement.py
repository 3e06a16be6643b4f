# SPDX-License-Identifier: GPL-2.0-only
"""One boot of an unattended guest that runs a whole-system workload, with or without a module loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.unattended import write_work
from orchestrator.benchmarks.system.figures import SystemFigures
from orchestrator.benchmarks.system.preparation import SystemSetup
from orchestrator.benchmarks.system.profiled_runs import ProfiledRuns, profiled_runs
from orchestrator.benchmarks.system.recording import Recorded, read_recorded, recorder_of
from orchestrator.benchmarks.system.task import SystemCell
from orchestrator.benchmarks.system.work import system_work
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import UnsupportedError
from orchestrator.results.contract import CellRecord, Clock, WorkEvidence
from orchestrator.results.statistics import median
from orchestrator.results.validity import valid_result
from orchestrator.run.artifacts import BootArtifacts
from orchestrator.run.boot import Session
from orchestrator.run.guest_checks import CLOCKSOURCE
from orchestrator.run.record import identity
from orchestrator.run.unattended_guest import Ending, Work, close, output_of, worked

_MOST_IDLE = 0.01
"""Idle fraction of a run's time, interrupts apart, above which a note is added."""
AA_BOOT_NOTE = "the baseline again, with other random numbers and its work begun at another phase of the timer's tick"


@dataclass(frozen=True)
class _Done:
    """The work's figures, the recorded events and their mechanism, and what the work has left."""

    figures: SystemFigures
    recorded: Recorded | None
    mechanism: str
    ending: Ending
    profiled: ProfiledRuns | None


def measure_work(session: Session, cell: SystemCell) -> CellRecord:
    """The record of a cell's runs, without a comparison. Raises EvidenceError, GuestError, UnsupportedError."""
    session.begin(cell)
    done = _work(session, cell)
    task, samples = cell.task, tuple(run.real for run in done.figures.warm)
    notes = [*session.setup(cell).notes, *([AA_BOOT_NOTE] if task.aa_boot else []), *_idle(done.figures, cell.clock)]
    is_baseline = not cell.compared_with
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={**cell.parameters, **_facts(session.artifacts, done)},
            status="ok",
            notes=tuple(notes),
            samples=samples,
            value=median(samples),
            overhead=0.0 if is_baseline else None,
            interval=(0.0, 0.0) if is_baseline else None,
            work=_evidence(done),
            text=done.ending.text,
            profile=None if done.profiled is None else done.profiled.proof,
            reference=cell.published,
        )


def _work(session: Session, cell: SystemCell) -> _Done:
    task, kind, artifacts = cell.task, recorder_of(cell), session.artifacts
    setup: SystemSetup = session.setup(cell).setup
    work = system_work(session.context, artifacts.kernel, task, setup.inputs, setup.beside, session.watch)
    if artifacts.machine.memory_mib < work.memory_mib:
        raise UnsupportedError(f"this work needs {work.memory_mib} MiB of memory: unpacking doubles its files at first")

    def write(file: Path) -> None:
        with file.open("wb") as target:
            write_work(target, artifacts.machine.initramfs, work.script, work.settings, work.files)

    inputs = {"name": f"{cell.benchmark} {task.scope} {task.image or ''}".strip(), **work.inputs}
    what = f"{cell.benchmark} ({task.scope})" if task.scope else cell.benchmark
    with worked(session, Work(write, what, cell.time_limit, inputs)) as worker:
        guest = worker.guest
        figures = work.read(output_of(guest))
        recorded = read_recorded(guest, kind, task.warm) if kind else None
        profiled = profiled_runs(session, cell, guest, figures)
        return _Done(figures, recorded, _mechanism(cell), close(worker), profiled)


def _mechanism(cell: SystemCell) -> str:
    kind = recorder_of(cell)
    if kind is not None:
        return kind.mechanism
    return "none" if cell.task.probe == BASELINE else "module"


def _facts(artifacts: BootArtifacts, done: _Done) -> dict[str, str | int | float]:
    figures = done.figures
    facts: dict[str, str | int | float] = {
        "kernel_release": artifacts.kernel.release,
        "accelerator": "kvm" if artifacts.machine.timing == "kvm" else "tcg",
        "user": median([run.user for run in figures.warm]),
        "system": median([run.system for run in figures.warm]),
        "cold": figures.cold.real,
        "cold_user": figures.cold.user,
        "cold_system": figures.cold.system,
        **figures.facts,
    }
    ticks = artifacts.kernel.config.get("CONFIG_HZ", "")
    if ticks.isdecimal():
        facts["ticks_per_second"] = int(ticks)
    if done.recorded is not None:
        facts["ring_slots"] = done.recorded.slots
        facts |= {f"recorded_{event}": count for event, count in done.recorded.by_event.items()}
        facts["events_a_run"] = done.recorded.in_a_run
    if done.profiled is not None:
        own = done.profiled.instrumentation
        facts |= {"instrumentation": median(own), "instrumentation_least": min(own), "instrumentation_most": max(own)}
    return facts


def _idle(figures: SystemFigures, clock: Clock) -> Iterator[str]:
    idle = median([1 - (run.user + run.system) / run.real for run in figures.warm])
    if idle > _MOST_IDLE:
        jumped = ": on this clock it is jumped over, and counts like instructions" if clock == "instructions" else ""
        yield f"in {100 * idle:.1f} % of a run's time the workload did nothing but wait{jumped}"


def _evidence(done: _Done) -> WorkEvidence:
    figures, recorded = done.figures, done.recorded
    return WorkEvidence(
        mechanism=done.mechanism,
        runs=1 + len(figures.warm),
        done=figures.done,
        digest=figures.digest,
        restored=None if recorded is None else True,
        clocksource=CLOCKSOURCE,
        taint=done.ending.taint,
        places=recorded.places if recorded else 0,
        recorded=recorded.events if recorded else None,
        lost=recorded.lost if recorded else None,
        overwritten=recorded.overwritten if recorded else None,
    )
