# SPDX-License-Identifier: GPL-2.0-only
"""Runs a plan: boot after boot, cell after cell, each outcome stored before the next begins.

A cell that fails costs its boot as well: the cells after it get a fresh guest, so that nothing it left behind is
measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.artifacts.workshop import Workshop
from orchestrator.benchmarks.gtodbench import NoSuchEntryError
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.bench import Bench, bench
from orchestrator.experiment.measurement import measure_cell, without_number
from orchestrator.experiment.plan import Boot, Cell, Plan
from orchestrator.experiment.provenance import Provenance, host_facts
from orchestrator.experiment.schema import Experiment
from orchestrator.experiment.supplies import Supplies, gather
from orchestrator.experiment.watcher import Watcher
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.faults import storage_faults
from orchestrator.results.runs import RunIdentity, prepare_directory, write_results
from orchestrator.results.store import RunEntry, Store


@dataclasses.dataclass(frozen=True)
class Runner:
    """What a run works with: the maker of artifacts, the store of results, and whoever watches."""

    workshop: Workshop
    store: Store
    watcher: Watcher

    def run(self, experiment: Experiment, plan: Plan, directory: Path | None) -> RunEntry:
        """Begin a new run, in ``directory`` or beside the store. Returns it when every cell has an outcome.

        What cannot be fetched is known before the run begins: nothing is recorded then.
        """
        facts = host_facts()
        supplies = self._gather(plan.boots)
        entry = self.store.begin_run(
            experiment.name,
            [cell.id for cell in plan.cells],
            digest=experiment.digest(),
            provenance=facts,
            directory=directory,
        )
        try:
            prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=entry.experiment))
            with storage_faults(entry.directory):
                (entry.directory / "experiment.yaml").write_text(experiment.resolved_yaml())
        except BaseException:
            self.store.forget_run(entry.id)
            raise
        return self._finish(entry, plan, supplies, facts)

    def resume(self, entry: RunEntry, plan: Plan) -> RunEntry:
        """Go on with a run at its first unfinished cell."""
        facts = host_facts()
        unfinished = set(self.store.unfinished_cells(entry.id))
        boots = [boot for boot in plan.boots if unfinished & {cell.id for cell in boot.cells}]
        supplies = self._gather(boots)
        prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=entry.experiment))
        return self._finish(entry, plan, supplies, facts)

    def _gather(self, boots: Iterable[Boot]) -> dict[Boot, Supplies]:
        return {boot: gather(self.workshop, boot) for boot in boots}

    def _finish(
        self, entry: RunEntry, plan: Plan, supplies: Mapping[Boot, Supplies], facts: dict[str, object]
    ) -> RunEntry:
        lock = FileLock(entry.directory / "run.lock")
        try:
            with lock.acquire(timeout=0):
                with storage_faults(entry.directory):
                    provenance = Provenance(entry.directory)
                    provenance.session(facts)
                self.store.resume_run(entry.id)
                self._work(entry, plan, supplies, provenance)
        except Timeout:
            raise UsageError(f"another process is working on run {entry.id}", where=str(entry.directory)) from None
        return self.store.entry(entry.id)

    def _work(self, entry: RunEntry, plan: Plan, supplies: Mapping[Boot, Supplies], provenance: Provenance) -> None:
        unfinished = set(self.store.unfinished_cells(entry.id))
        left = [cell.id for cell in plan.cells if cell.id in unfinished]
        self.watcher.begin(entry.id, plan, len(plan.cells) - len(left))
        try:
            for number, boot in enumerate(plan.boots, start=1):
                cells = [cell for cell in boot.cells if cell.id in unfinished]
                if cells:
                    _Measuring(self, entry, provenance, f"boot{number}").measure(boot, cells, supplies[boot])
        finally:
            # With --only, a run that is gone on with may still not be at its end.
            self.store.finish_run(entry.id, "interrupted" if self.store.unfinished_cells(entry.id) else "complete")
            write_results(entry.directory, self.store.load_run(entry.id))


class _Measuring:
    """One boot's cells, in as many guests as their failures cost."""

    def __init__(self, runner: Runner, entry: RunEntry, provenance: Provenance, name: str) -> None:
        self._runner = runner
        self._entry = entry
        self._provenance = provenance
        self._name = name
        self._guests = 0

    def measure(self, boot: Boot, cells: Sequence[Cell], supplies: Supplies) -> None:
        waiting = list(cells)
        while waiting:
            name = self._next_name(boot)
            self._runner.watcher.say(f"booting {boot.kernel} on {boot.cpu}")
            try:
                with bench(supplies, self._entry.directory, name) as ready:
                    with storage_faults(self._entry.directory):
                        self._provenance.boot(name, supplies, ready.guest.command_line)
                    while waiting and self._measure_one(ready, waiting[0]):
                        waiting.pop(0)
                    if waiting:
                        waiting.pop(0)
            except LabError as error:
                if isinstance(error, HostError | UsageError):
                    raise
                # No guest to measure in, and a second try would end the same: the exact clock repeats everything.
                for cell in waiting:
                    self._store(without_number(cell, "failed", str(error)))
                return

    def _next_name(self, boot: Boot) -> str:
        """A guest's name, which its logs have too; a run that is gone on with keeps the logs of its earlier guests."""
        while True:
            self._guests += 1
            name = f"{self._name}-guest{self._guests}-{boot.cpu}-{boot.kernel}"
            if not (self._entry.directory / f"{name}.console").exists():
                return name

    def _measure_one(self, ready: Bench, cell: Cell) -> bool:
        """Measure and store one cell; False when the guest should not be used any more."""
        self._runner.watcher.cell_begins(cell.id)
        try:
            record = measure_cell(ready, cell, self._baseline(cell))
        except NoSuchEntryError as error:
            record = without_number(cell, "unsupported", str(error))
        except HostError:
            raise
        except LabError as error:
            record = without_number(cell, "failed", str(error))
        self._store(record)
        return record.status != "failed"

    def _baseline(self, cell: Cell) -> float | None:
        """The stored cost without a probe; on the exact clock it is the same in every boot of the machine."""
        wanted = (cell.cpu, cell.smp, cell.kernel, cell.handler)
        for record in self._runner.store.load_run(self._entry.id).cells:
            same = (record.cpu, record.smp, record.kernel, record.handler) == wanted
            if same and record.probe == BASELINE and _same_machine(record.id, cell.id):
                return record.value
        return None

    def _store(self, record: CellRecord) -> None:
        self._runner.store.record(self._entry.id, record)
        self._runner.watcher.cell_ends(record)


def _same_machine(one: str, other: str) -> bool:
    # The first part of a cell's id names the whole machine, its memory included.
    return one.split("/")[0] == other.split("/")[0]


def all_ok(record: RunRecord) -> bool:
    """Whether no cell failed and at least one has a number.

    A cell that this machine or kernel cannot have is no failure; a run of nothing else measured nothing.
    """
    states = {cell.status for cell in record.cells}
    return "failed" not in states and "ok" in states


def check_resumable(entry: RunEntry, experiment: Experiment) -> None:
    """Raise UsageError when a run was begun with another experiment file or other overrides."""
    if entry.digest != experiment.digest():
        raise UsageError(
            f"run {entry.id} was begun with another experiment file, or other --set values",
            where=str(entry.directory),
            hint=f"its own experiment is {entry.directory / 'experiment.yaml'}; without --resume a new run begins",
        )
