# SPDX-License-Identifier: GPL-2.0-only
"""The fixture ``probe_cost``: the cost of a call with a probe in its path, in a test's guest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.calls.kind import KIND as CALLS
from orchestrator.benchmarks.calls.measurement import measure_call
from orchestrator.catalog.probes import BASELINE, file_of, with_file
from orchestrator.errors import EvidenceError, UnsupportedError, UsageError
from orchestrator.experiment.experiment import Experiment, Heading, NamedTable
from orchestrator.experiment.fields import ValidationContext
from orchestrator.experiment.plan import plan
from orchestrator.experiment.problems import problems_of
from orchestrator.guest.qemu_facts import qemu_cpu_names
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.probes.symbols import Symbols
from orchestrator.pytest_plugin.counted_calls import settle
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.run.benchmark_kind import Refused
from orchestrator.run.boot_preparation import prepare
from orchestrator.run.cell_records import compared, without_number
from orchestrator.run.ready_guest import ReadyGuest


@dataclass(frozen=True)
class ProbeCost:
    """The cost of a call with a probe in its path."""

    value: float
    """The cost of one call with the probe, in ``unit``."""
    overhead: float
    """The probe's part of it, in ``unit``: the cost of the call without the probe is subtracted."""
    unit: str
    """``instructions``."""
    evidence: Evidence
    """What proves the mechanism: the bytes at the probe point, the hits, the traps."""
    record: CellRecord
    """The complete record, as the lab would store it."""


class ProbeCosts:
    """Measures in one guest. Made by the fixture ``probe_cost``."""

    def __init__(self, guest: TestedGuest, workshop: BuildContext, kernel: Kernel, image: str | None) -> None:
        self._guest, self._workshop, self._kernel, self._image = guest, workshop, kernel, image

    def __call__(self, probe: str, *, handler: str = "noop", point: str | None = None, **benchmark: Any) -> ProbeCost:
        """Measure gettimeofday with a probe at its function, or at ``point``, and without.

        ``probe`` is a kind of probe, or the path of a module of your own. ``benchmark`` are keys of an experiment's
        ``benchmark``: ``call="getppid"`` for another system call, ``calls``, ``repeats``, ``expect``. Raises UsageError
        for what no experiment may contain, EvidenceError if a proof fails, UnsupportedError if the kernel cannot have
        the probe.
        """
        settle(self._guest)
        table = self._table(probe, handler, point, benchmark)
        (boot,) = plan(Experiment(Heading(name="probe-cost"), [NamedTable(None, CALLS, table)])).boots
        artifacts = prepare(self._workshop, CALLS, boot)
        ready = ReadyGuest(self._guest, replace(artifacts, machine=self._guest.machine), Symbols.of(self._guest))
        records: dict[str, CellRecord] = {}
        for cell in boot.cells:
            prepared = artifacts.cells[cell.id]
            if isinstance(prepared, Refused):
                record = without_number(cell, prepared.status, prepared.reason)
            else:
                record = measure_call(ready, cell, prepared)
            records[cell.id] = compared(CALLS, cell, record, records)
        return _cost(records[boot.cells[-1].id])

    def _table(self, probe: str, handler: str, point: str | None, benchmark: Mapping[str, Any]) -> CallsTable:
        machine = self._guest.machine
        file = file_of(probe)
        path = probe if file is None else with_file(probe, str(self._guest.folder / file))
        described: dict[str, Any] = {
            "image": self._image,
            "benchmark": {"name": "syscall" if "call" in benchmark else "gtodbench", **benchmark},
            "kernels": [self._kernel.spec.argument],
            "machines": [{"cpu": machine.cpu.name, "smp": machine.smp, "memory": f"{machine.memory_mib}M"}],
            "probes": [BASELINE, path],
            "handlers": [handler],
        }
        if point is not None:
            described["points"] = [point]
        try:
            return CallsTable.model_validate(described, context=ValidationContext(qemu_cpu_names))
        except ValidationError as error:
            problems = problems_of(error, lambda path: "unknown key")
            sentences = [f"{'.'.join(map(str, problem.path))}: {problem.sentence}" for problem in problems]
            raise UsageError("; ".join(sentences)) from None


def _cost(record: CellRecord) -> ProbeCost:
    if record.status != "ok":
        refused = UnsupportedError if record.status == "unsupported" else EvidenceError
        raise refused(record.reason or record.status)
    assert record.value is not None
    if record.overhead is None or record.evidence is None:
        raise EvidenceError(f"{record.id} has no overhead: {'; '.join(record.notes)}")
    return ProbeCost(record.value, record.overhead, record.unit, record.evidence, record)
