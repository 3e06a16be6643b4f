# SPDX-License-Identifier: GPL-2.0-only
"""One boot whose guest runs a whole-system workload by itself, and what that comes to beside the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.unattended import write_work
from orchestrator.benchmarks.system.figures import MacroFigures
from orchestrator.benchmarks.system.recording import Recorded, read_recorded, recorder_of, request_of
from orchestrator.benchmarks.system.work import macro_work
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import BuildError, EvidenceError, HostError, LabError, UnsupportedError, UsageError
from orchestrator.experiment.cell import Cell, MacroTask
from orchestrator.experiment.plan import Boot
from orchestrator.results.contract import UNITS, CellRecord, Clock, WorkEvidence
from orchestrator.results.resolution import Resolution
from orchestrator.results.statistics import median
from orchestrator.run.boot_artifacts import BootArtifacts, Target
from orchestrator.run.coordinator import Coordinator
from orchestrator.run.journal import RunJournal
from orchestrator.run.outcome import identity, reference, without_number
from orchestrator.run.postconditions import valid_result
from orchestrator.run.ready_guest import CLOCKSOURCE
from orchestrator.run.unattended_guest import UnattendedGuest, close, output_of

_MOST_IDLE = 0.01
"""Of a run's time, that nobody worked in, interrupts apart; more of it is told."""
AGAIN = "the baseline again, with other random numbers and its work begun at another phase of the timer's tick"


@dataclass
class MacroWorker:
    """Does the work of a boot's one cell and records it; ``name`` is what its guest's logs begin with."""

    context: BuildContext
    coordinator: Coordinator
    journal: RunJournal
    boot: Boot
    cells: Sequence[Cell]
    artifacts: BootArtifacts
    name: str

    def measure(self) -> None:
        """Give every cell an outcome. Raises HostError and UsageError, which end runs."""
        for cell in self.cells:
            self.journal.end(self._outcome(cell))

    def _outcome(self, cell: Cell) -> CellRecord:
        target = self.artifacts.targets[cell.id]
        if isinstance(target, str):
            return without_number(self.artifacts, cell, "unsupported", target)
        self.journal.begin(cell)
        try:
            return self._record(cell, target, self._work(cell, target))
        except UnsupportedError as error:
            return without_number(self.artifacts, cell, "unsupported", str(error))
        except LabError as error:
            if isinstance(error, HostError | UsageError):
                raise
            return without_number(self.artifacts, cell, "failed", str(error))

    def _work(self, cell: Cell, target: Target) -> _Done:
        if isinstance(target.module, BuildError):
            raise target.module
        task, kind = _task(cell), recorder_of(cell)
        context = replace(self.context, say=self.journal.say)  # whoever is told, is told at the coordinator
        work = macro_work(context, self.artifacts.kernel, request_of(cell, target.module), self.coordinator.watch)
        if self.artifacts.machine.memory_mib < work.memory_mib:
            raise UnsupportedError(f"this work needs {work.memory_mib} MiB of memory: it is all there, twice at first")
        machine = self.artifacts.machine

        def write(file: Path) -> None:
            with file.open("wb") as target:
                write_work(target, machine.initramfs, work.script, work.settings, work.files)

        inputs = {"name": f"{cell.benchmark} {task.scope or ''} {task.image or ''}".strip(), **work.inputs}
        place = UnattendedGuest(self.coordinator, self.journal, self.boot, self.artifacts, self.name)
        with place.worked(machine, write, _what(cell), cell.time_limit, inputs) as guest:
            figures = work.read(output_of(guest))
            recorded = read_recorded(guest, kind, cell.repeats) if kind else None
            return _Done(figures, recorded, self._mechanism(cell), close(guest))

    def _mechanism(self, cell: Cell) -> str:
        kind = recorder_of(cell)
        if kind is not None:
            return kind.mechanism
        return "none" if cell.probe == BASELINE else "module"

    def _record(self, cell: Cell, target: Target, done: _Done) -> CellRecord:
        task, figures = _task(cell), done.figures
        samples = tuple(run.real for run in figures.warm)
        unit = UNITS[cell.clock]
        baseline, repetitions = self._compared_with(cell, task)
        if baseline is not None:
            check_same_work(baseline, figures)
        resolution = Resolution.of(
            samples, () if baseline is None else baseline.samples, [record.samples for record in repetitions]
        )
        itself = cell.id == task.baseline
        notes = [*target.notes, *([AGAIN] if task.again else []), *_idle(figures, cell.clock)]
        undecided = None if itself or task.again else resolution.why_undecided(unit)
        fields = identity(self.artifacts, cell)
        told = fields.pop("parameters")
        assert isinstance(told, dict)
        with valid_result():
            return CellRecord(
                **fields,
                parameters={**told, **self._facts(done), **_compared(resolution)},
                status="ok",
                notes=(*notes, *([undecided] if undecided else [])),
                samples=samples,
                value=median(samples),
                overhead=0.0 if itself else resolution.overhead,
                interval=(0.0, 0.0) if itself else resolution.interval,
                verdict="none" if undecided else None,
                work=_evidence(done),
                reference=reference(cell),
            )

    def _compared_with(self, cell: Cell, task: MacroTask) -> tuple[CellRecord | None, list[CellRecord]]:
        """The baseline and its repetitions, as far as they have numbers; they are worked on before all others."""
        if cell.id == task.baseline:
            return None, []
        ids = [task.baseline] if task.again else [task.baseline, *task.others]
        found = [record for record in self.journal.wait_for(ids) if record.status == "ok"]
        baseline = next((record for record in found if record.id == task.baseline), None)
        return baseline, [record for record in found if record.id != task.baseline]

    def _facts(self, done: _Done) -> dict[str, str | int | float]:
        figures = done.figures
        facts: dict[str, str | int | float] = {
            "kernel_release": self.artifacts.kernel.release,
            "accelerator": "kvm" if self.artifacts.machine.timing == "kvm" else "tcg",
            "user": median([run.user for run in figures.warm]),
            "system": median([run.system for run in figures.warm]),
            "cold": figures.cold.real,
            "cold_user": figures.cold.user,
            "cold_system": figures.cold.system,
            **figures.facts,
        }
        ticks = self.artifacts.kernel.config.get("CONFIG_HZ", "")
        if ticks.isdecimal():
            facts["ticks_per_second"] = int(ticks)
        if done.recorded is not None:
            facts["ring_slots"] = done.recorded.slots
            facts |= {f"recorded_{event}": count for event, count in done.recorded.by_event.items()}
            facts["events_a_run"] = done.recorded.in_a_run
        return facts


def _task(cell: Cell) -> MacroTask:
    assert cell.macro is not None
    return cell.macro


def _what(cell: Cell) -> str:
    scope = _task(cell).scope
    return f"{cell.benchmark} ({scope})" if scope else cell.benchmark


def check_same_work(baseline: CellRecord, figures: MacroFigures) -> None:
    """Raise EvidenceError where the baseline's runs came to something else: other work is no comparison."""
    proof = baseline.work
    assert proof is not None
    if (proof.done, proof.digest) != (figures.done, figures.digest):
        raise EvidenceError(
            f"each run came to {figures.done} things of digest {figures.digest[:16] or 'none'}, the baseline's to "
            f"{proof.done} of {proof.digest[:16] or 'none'}: they did not do the same work"
        )


def _idle(figures: MacroFigures, clock: Clock) -> Iterator[str]:
    idle = median([1 - (run.user + run.system) / run.real for run in figures.warm])
    if idle > _MOST_IDLE:
        jumped = ": on this clock it is jumped over, and counts like instructions" if clock == "instructions" else ""
        yield f"in {100 * idle:.1f} % of a run's time the workload did nothing but wait{jumped}"


def _compared(resolution: Resolution) -> dict[str, float]:
    known = {"resolvable": resolution.smallest, "again_difference": resolution.again}
    return {name: value for name, value in known.items() if value is not None}


def _evidence(done: _Done) -> WorkEvidence:
    figures, recorded = done.figures, done.recorded
    return WorkEvidence(
        mechanism=done.mechanism,
        runs=1 + len(figures.warm),
        done=figures.done,
        digest=figures.digest,
        restored=None if recorded is None else True,
        clocksource=CLOCKSOURCE,
        taint=done.taint,
        places=recorded.places if recorded else 0,
        recorded=recorded.events if recorded else None,
        lost=recorded.lost if recorded else None,
        overwritten=recorded.overwritten if recorded else None,
    )


@dataclass(frozen=True)
class _Done:
    """What the work came to, what was recorded of it by which mechanism, and the kernel's taint mask after it."""

    figures: MacroFigures
    recorded: Recorded | None
    mechanism: str
    taint: int
