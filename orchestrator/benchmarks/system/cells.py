# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a whole-system workload's table, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from orchestrator.benchmarks.system.published import published_systems
from orchestrator.benchmarks.system.table import SystemBenchmark, SystemTable
from orchestrator.benchmarks.system.task import SystemCell, SystemTask
from orchestrator.benchmarks.system.workloads import WorkloadName, system_workloads
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE, probe_kind
from orchestrator.catalog.user_probe import is_path, shown_name
from orchestrator.experiment.cell import Cell, cell_id, machine_id, module_parameters, rows_on
from orchestrator.experiment.machine import Machine
from orchestrator.results.contract import PER_RUN, ReferenceValue

_SHORTEST_LIMIT = 600
_HOST_SECONDS = 40
"""Host seconds for each guest second: an emulator takes four, with a profile five, and a busy host eight times that."""
_PACKETS_PER_SECOND = 10_000
"""Per second of guest time: a few times fewer than any kernel answers."""
_PHASE_US = 3700
"""Microseconds by which each A/A boot's work begins later than the last one's: no multiple of a tick's period."""
_LONGEST_PHRASE = 200


def system_cells(name: str | None, table: SystemTable) -> Iterator[SystemCell]:
    """The cells of each machine: the first kernel without a probe, its A/A boots, and the cells compared with it.

    Each cell has its own boot.
    """
    for machine in table.machines:
        yield from _Cells(name, table, machine).all()


@dataclass(frozen=True)
class _Cells:
    """The cells of one machine of a table; ``name`` is the table's."""

    name: str | None
    table: SystemTable
    machine: Machine

    def all(self) -> Iterator[SystemCell]:
        table, first = self.table, self.table.kernels[0]
        baseline = self._id(first, BASELINE)
        # The ids of A/A boots are those of earlier versions' results.
        aa_boots = tuple(f"{baseline}/again{number}" for number in range(1, table.benchmark.aa_boots + 1))
        yield self._cell(baseline, first, self._task(BASELINE, 0), ())
        for number, id_ in enumerate(aa_boots, start=1):
            yield self._cell(id_, first, self._task(BASELINE, number), (baseline,))
        for kernel, probes in rows_on(table.kernels, table.probes, table.kernel_for).items():
            # Another kernel has its own cell without a probe, which separates the kernel's cost from the probe's.
            alone = [] if kernel == first else [BASELINE]
            for probe in (*alone, *(probe for probe in probes if probe != BASELINE)):
                yield self._cell(self._id(kernel, probe), kernel, self._task(probe, 0), (baseline, *aa_boots))

    def _id(self, kernel: str, probe: str) -> str:
        return cell_id(self.name, machine_id(self.machine), kernel_spec(kernel).name, probe_kind(probe).name)

    def _task(self, probe: str, aa_boot: int) -> SystemTask:
        benchmark = self.table.benchmark
        assert benchmark.repeats is not None
        return SystemTask(
            name=cast(WorkloadName, benchmark.name),
            probe=probe,
            scope=benchmark.scope or "",
            packets=benchmark.packets or 0,
            command=benchmark.command or (),
            image=self.table.image,
            warm=benchmark.repeats,
            seed=(benchmark.seed + aa_boot) % 2**32,
            phase_us=aa_boot * _PHASE_US,
            aa_boot=aa_boot,
            events=benchmark.events or (),
        )

    def _cell(self, id_: str, kernel: str, task: SystemTask, compared_with: tuple[str, ...]) -> SystemCell:
        table, machine, kind = self.table, self.machine, probe_kind(task.probe)
        return Cell(
            id=id_,
            table=self.name,
            cpu=machine.cpu,
            smp=machine.smp,
            memory_mib=machine.memory_mib,
            kernel=kernel,
            row=kind.name,
            handler="noop" if task.probe == BASELINE or is_path(task.probe) else "record",
            benchmark=task.name,
            metric=PER_RUN,
            repeats=task.warm,
            clock=table.clock,
            image=None,  # unpacked into memory, not a disk
            channel="framed",
            time_limit=table.time_limit or _time_limit(table.benchmark),
            task=task,
            parameters={"memory_mib": machine.memory_mib, **_parameters(task), **module_parameters(kind)},
            published=_published(table.reference, kernel, task),
            compared_with=compared_with,
            profile=table.profile or (),
        )


def _time_limit(benchmark: SystemBenchmark) -> int:
    """Seconds of the host's time that a run may take: several times what an emulator needs on a busy host."""
    seconds = system_workloads().scopes[benchmark.scope].seconds if benchmark.scope else 0
    return _SHORTEST_LIMIT + _HOST_SECONDS * (seconds + (benchmark.packets or 0) // _PACKETS_PER_SECOND)


def _parameters(task: SystemTask) -> dict[str, str | int]:
    parameters: dict[str, str | int] = {}
    if task.scope:
        parameters["scope"] = task.scope
    if task.packets:
        parameters["packets"] = task.packets
    if task.command:
        parameters["command"] = " ".join(task.command)[:_LONGEST_PHRASE]
    if task.image is not None:
        parameters["image"] = shown_name(Path(task.image))
    if task.aa_boot:
        parameters["again"] = task.aa_boot
    return parameters


def _published(reference: str | None, kernel: str, task: SystemTask) -> ReferenceValue | None:
    if reference is None or task.aa_boot:
        return None
    table = published_systems()[reference]
    row = table.row(kernel_spec(kernel).name, probe_kind(task.probe).name)
    if row is None:
        return None
    overhead = table.difference(row) if row.overhead is None else row.overhead
    if overhead is None:
        return None
    return ReferenceValue(table=table.id, value=row.real, overhead=overhead, unit=table.unit)
