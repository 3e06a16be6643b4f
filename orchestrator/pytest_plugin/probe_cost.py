# SPDX-License-Identifier: GPL-2.0-only
"""What a probe costs in a test's guest: a cell of an experiment, measured and proved as the lab does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.kind import KIND as CALLS
from orchestrator.benchmarks.calls.measurement import measure_call
from orchestrator.benchmarks.calls.table import CallsTable
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.user_probe import is_path
from orchestrator.errors import EvidenceError, UnsupportedError, UsageError
from orchestrator.experiment.experiment import Experiment, Heading, NamedTable
from orchestrator.experiment.file.fields import Surroundings
from orchestrator.experiment.file.problems import problems_of
from orchestrator.experiment.plan import plan
from orchestrator.guest.emulator import qemu_cpu_names
from orchestrator.probes.symbols import Symbols
from orchestrator.pytest_plugin.exact_clock import settle
from orchestrator.pytest_plugin.tested_guest import TestedGuest
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.run.artifacts import prepare
from orchestrator.run.comparison import compared
from orchestrator.run.preparation import Refused
from orchestrator.run.ready_guest import ReadyGuest
from orchestrator.run.record import without_number


@dataclass(frozen=True)
class ProbeCost:
    """The cost of a call with a probe in its path."""

    value: float
    """Of one call with the probe, in ``unit``."""
    overhead: float
    """The probe's part of it, in ``unit``: what the call takes without the probe is subtracted."""
    unit: str
    """``instructions``."""
    evidence: Evidence
    """What proves the mechanism: the bytes at the probe point, the hits, the traps."""
    record: CellRecord
    """All that the lab would have stored."""


class ProbeCosts:
    """Measures in one guest. Made by the fixture ``probe_cost``."""

    def __init__(self, guest: TestedGuest, workshop: BuildContext, kernel: Kernel, image: str | None) -> None:
        self._guest = guest
        self._workshop = workshop
        self._kernel = kernel
        self._image = image

    def __call__(self, probe: str, *, handler: str = "noop", point: str | None = None, **benchmark: Any) -> ProbeCost:
        """Measure gettimeofday with a probe at its function, or at ``point``, and without.

        ``probe`` is a kind of probe, or the path of a module of one's own. ``benchmark`` are keys of an experiment's
        ``benchmark``: ``call="getppid"`` for another system call, ``calls``, ``repeats``, ``expect``. Raises
        UsageError for what no experiment may contain, EvidenceError where a proof fails, UnsupportedError where the
        kernel cannot have the probe.
        """
        settle(self._guest)
        table = self._table(probe, handler, point, benchmark)
        (boot,) = plan(Experiment(Heading(name="probe-cost"), [NamedTable(None, CALLS, table)])).boots
        artifacts = prepare(self._workshop, CALLS, boot)
        ready = ReadyGuest(self._guest, replace(artifacts, machine=self._guest.machine), Symbols.of(self._guest))
        records: dict[str, CellRecord] = {}
        for cell in boot.cells:
            records[cell.id] = compared(CALLS, cell, _measured(ready, cell), records)
        return _cost(records[boot.cells[-1].id])

    def _table(self, probe: str, handler: str, point: str | None, benchmark: Mapping[str, Any]) -> CallsTable:
        machine = self._guest.machine
        own = str(self._guest.folder / probe) if is_path(probe) else probe
        described: dict[str, Any] = {
            "image": self._image,
            "benchmark": {"name": "syscall" if "call" in benchmark else "gtodbench", **benchmark},
            "kernels": [self._kernel.spec.name],
            "machines": [{"cpu": machine.cpu.name, "smp": machine.smp, "memory": f"{machine.memory_mib}M"}],
            "probes": [BASELINE, own],
            "handlers": [handler],
        }
        if point is not None:
            described["points"] = [point]
        try:
            return CallsTable.model_validate(described, context=Surroundings(qemu_cpu_names))
        except ValidationError as error:
            problems = problems_of(error, lambda path: "unknown key")
            sentences = [f"{'.'.join(map(str, problem.path))}: {problem.sentence}" for problem in problems]
            raise UsageError("; ".join(sentences)) from None


def _measured(ready: ReadyGuest, cell: CallCell) -> CellRecord:
    prepared = ready.artifacts.cells[cell.id]
    if isinstance(prepared, Refused):
        return without_number(cell, prepared.status, prepared.reason)
    return measure_call(ready, cell, prepared)


def _cost(record: CellRecord) -> ProbeCost:
    if record.status != "ok":
        refused = UnsupportedError if record.status == "unsupported" else EvidenceError
        raise refused(record.reason or record.status)
    assert record.value is not None
    if record.overhead is None or record.evidence is None:
        raise EvidenceError(f"{record.id} has no overhead: {'; '.join(record.notes)}")
    return ProbeCost(record.value, record.overhead, record.unit, record.evidence, record)
