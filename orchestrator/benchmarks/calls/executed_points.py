# SPDX-License-Identifier: GPL-2.0-only
"""The points of a table with ``points: executed``: found before its cells are known."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.benchmarks.calls.cells import profiled_cell
from orchestrator.benchmarks.calls.executed import Executed, executed_by
from orchestrator.benchmarks.calls.preparation import workload_of
from orchestrator.benchmarks.calls.probe_setup import calls_unsupported_reason
from orchestrator.benchmarks.calls.table import CallsTable, FoundPoint
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.benchmarks.calls.workload import ExactWorkload
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import UsageError
from orchestrator.experiment.cell import machine_id
from orchestrator.experiment.file.fields import EXECUTED
from orchestrator.experiment.plan import Boot
from orchestrator.run.artifacts import BootArtifacts
from orchestrator.run.kind import Obtain
from orchestrator.run.machines import machine_of

MOST_POINTS = 200
"""Functions that are probed, on one kernel and machine; a system call enters some twenty."""


def with_points(context: BuildContext, table: CallsTable, obtain: Obtain) -> CallsTable:
    """The table with the functions that its calls enter, on each kernel and machine.

    What ``obtain`` has not, and what a kernel cannot run, is left out. Raises HostError, GuestError, EvidenceError, and
    UsageError where calls enter no function.
    """
    if table.points != EXECUTED:
        return table
    found = {}
    for machine, kernel in product(table.machines, table.all_kernels):
        cell = profiled_cell(table, machine, kernel)
        executed = _executed(context, ready_kernel(context, kernel_spec(kernel)), cell, obtain)
        if executed is not None:
            found[machine_id(machine), kernel] = tuple(found_points(executed))
            if not found[machine_id(machine), kernel]:
                raise UsageError(f"calls of {cell.benchmark} enter no function of {kernel_spec(kernel).name}")
    return table.with_executed(found)


def found_points(executed: Executed) -> Iterator[FoundPoint]:
    """The functions as points, the one with the most instructions first; a name that several have is there once."""
    probed, names = 0, set()
    for one in executed.functions:
        if one.name in names:
            continue
        names.add(one.name)
        refusal = one.refusal
        if refusal is None:
            probed += 1
            if probed > MOST_POINTS:
                refusal = f"left out: {MOST_POINTS} functions with more instructions are probed"
        yield FoundPoint(one.name, one.entered // executed.calls if refusal is None else 1, refusal)


def _executed(context: BuildContext, kernel: Kernel, cell: CallCell, obtain: Obtain) -> Executed | None:
    if calls_unsupported_reason(kernel, cell) is not None:
        return None
    boot = Boot(
        "calls", cell.cpu, cell.smp, cell.memory_mib, cell.kernel, cell.clock, cell.image, cell.channel, (cell,)
    )
    artifacts = BootArtifacts(kernel, machine_of(context, kernel, boot), {})
    workload = workload_of(context, kernel, cell)
    assert isinstance(workload, ExactWorkload)  # the table takes no program that is run whole
    return executed_by(context, obtain, artifacts, workload, cell.time_limit)
