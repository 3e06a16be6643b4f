# SPDX-License-Identifier: GPL-2.0-only
"""Measuring one cell of a stored run again, in a guest like its first one, without touching the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.kind_registry import KindRegistry
from orchestrator.experiment.plan import Boot, plan
from orchestrator.guest.guest import Watch
from orchestrator.guest.qemu_facts import qemu_cpu_names
from orchestrator.plain_text import shown
from orchestrator.results.contract import CellRecord
from orchestrator.results.recorded_provenance import provenance_differences, provenance_of
from orchestrator.results.runs import EXPERIMENT_FILE, Run
from orchestrator.run.benchmark_kind import BenchmarkKind, BootArtifacts, BootTask, Ready, Session
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import CellRecorded, Event, GuestBooted, Progress
from orchestrator.run.boot_preparation import prepare
from orchestrator.run.guest_start import unwatched
from orchestrator.run.provenance import Provenance, host_facts
from orchestrator.run.runner import resolve_in_guests

_SHOWN = 10
BOOT = "boot1"
"""The folder with the files of the guest and the profile."""


@dataclass(frozen=True)
class RemeasuredCell:
    """A cell of a stored run that is ready to be measured again, alone."""

    context: BuildContext
    run: Run
    stored: CellRecord
    kind: BenchmarkKind
    boot: Boot
    artifacts: BootArtifacts

    @classmethod
    def of(
        cls,
        context: BuildContext,
        kinds: KindRegistry[BenchmarkKind],
        run: Run,
        stored: CellRecord,
        parts: Sequence[ProfilePart] = (),
    ) -> RemeasuredCell:
        """Prepare a cell by its run's experiment, with more ``parts`` of a profile.

        Raises UsageError where the run has no experiment, or the experiment no longer has the cell.
        """
        file = run.directory / EXPERIMENT_FILE
        if not file.is_file():
            raise UsageError("the run has no experiment, so its cells cannot be measured again", where=str(file))
        experiment = resolve_in_guests(context, load_experiment(file, kinds, (), qemu_cpu_names), kinds)
        pair = next(
            ((boot, cell) for boot in plan(experiment).boots for cell in boot.cells if cell.id == stored.id), None
        )
        if pair is None:
            raise UsageError(
                f"the experiment of run {run.record.run} no longer has cell {stored.id}",
                where=str(file),
                hint="the kernel or this program has changed since; run the experiment again",
            )
        boot, cell = pair
        boot = replace(boot, cells=(replace(cell, profile=tuple(dict.fromkeys((*cell.profile, *parts)))),))
        kind = kinds.named(boot.kind)
        return cls(context, run, stored, kind, boot, prepare(context, kind, boot))

    @property
    def modules(self) -> Sequence[Module]:
        """The cell's modules; none of a cell that is refused."""
        prepared = self.artifacts.cells[self.stored.id]
        return prepared.modules if isinstance(prepared, Ready) else ()

    def measure(self, directory: Path, watch: Watch = unwatched) -> CellRecord:
        """Measure it; all files go into ``directory``. ``watch`` gets each guest before it runs.

        Raises LabError where the cell has no number, or another one than in the run.
        """
        provenance = Provenance(directory)
        provenance.session(host_facts(self.context))
        cells: list[CellRecord] = []

        def take(event: Event) -> None:
            match event:
                case Progress(text):
                    self.context.say(text)
                case GuestBooted():
                    provenance.boot(event, BOOT, self.artifacts)
                case CellRecorded(record):
                    cells.append(record)

        task = BootTask(self.kind, self.boot, self.boot.cells, directory / BOOT)
        run_boot(Session(task, self.artifacts, self.context, take, watch))
        (record,) = cells
        if record.value is None:
            reason = (record.reason or "").splitlines()
            raise LabError(f"cell {record.id} is {record.status}, and has no number", detail=reason[:_SHOWN])
        stored = self.stored
        if record.value == stored.value or stored.clock == "wall" or len(set(stored.samples)) > 1:  # they may vary
            return record
        differing = [
            difference.sentence
            for difference in provenance_differences(provenance_of(self.run.directory), provenance_of(directory))
        ]
        was = f"{stored.value:.10g} in run {self.run.record.run}"
        raise LabError(
            f"{record.id} now takes {record.value:.10g} {record.unit}, and {was}",
            detail=shown(differing or ["nothing that the lab records differs"], _SHOWN),
            hint="run the experiment again, and use that run",
        )
