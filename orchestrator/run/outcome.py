# SPDX-License-Identifier: GPL-2.0-only
"""How a cell's outcome becomes a record of the result contract."""

from __future__ import annotations

from pathlib import Path

from orchestrator.benchmarks.scaling.rows import mass_benchmark, mass_row
from orchestrator.benchmarks.system.published import published_systems
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import probe_kind
from orchestrator.catalog.reference import reference_table
from orchestrator.catalog.user_probe import shown_name
from orchestrator.catalog.user_workload import find_workload
from orchestrator.experiment.cell import Cell, MacroTask
from orchestrator.results.contract import PER_CALL, PER_LOOP, PER_RUN, UNITS, CellRecord, ReferenceValue, Status
from orchestrator.run.boot_artifacts import BootArtifacts

_LONGEST_PHRASE = 200


def without_number(artifacts: BootArtifacts, cell: Cell, status: Status, reason: str) -> CellRecord:
    """The outcome of a cell that has no number, with the reason."""
    return CellRecord(**identity(artifacts, cell), status=status, reason=reason)


def identity(artifacts: BootArtifacts, cell: Cell) -> dict[str, object]:
    """The fields that tell a cell from all others."""
    return {
        "id": cell.id,
        "table": cell.table,
        "cpu": cell.cpu,
        "smp": cell.smp,
        "kernel": artifacts.kernel.spec.name,
        "probe": probe_kind(cell.probe).name,
        "handler": cell.handler,
        "benchmark": cell.benchmark,
        "metric": metric(cell),
        "clock": cell.clock,
        "unit": UNITS[cell.clock],
        "parameters": asked(cell),
    }


def metric(cell: Cell) -> str:
    """What a sample of the cell is."""
    if cell.benchmark == "markers":
        return PER_LOOP
    mass = mass_benchmark(cell.benchmark)
    if mass is not None:
        return f"cost per {(mass_row(cell.probe) or mass.baseline).each}"
    if cell.macro is not None:
        return PER_RUN
    return PER_RUN if cell.file is not None and find_workload(cell.file).kind == "program" else PER_CALL


def asked(cell: Cell) -> dict[str, str | int]:
    """What else tells the cell from others, as the experiment says it."""
    told: dict[str, str | int] = {}
    if cell.call is not None:
        told["call"] = cell.call
    if cell.file is not None:
        told["workload"] = shown_name(Path(cell.file))
    if cell.point is not None:
        told["at"] = cell.point
    if cell.size is not None:
        told["probes"], told["seed"] = cell.size, cell.seed
    if cell.macro is not None:
        told |= {"memory_mib": cell.memory_mib, **_macro_asked(cell.macro)}
    if cell.image is not None:
        told["image"] = shown_name(Path(cell.image))
    if cell.channel != "framed":
        told["channel"] = cell.channel
    return told


def _macro_asked(task: MacroTask) -> dict[str, str | int]:
    told: dict[str, str | int] = {}
    if task.scope is not None:
        told["scope"] = task.scope
    if task.packets is not None:
        told["packets"] = task.packets
    if task.command:
        told["command"] = " ".join(task.command)[:_LONGEST_PHRASE]
    if task.image is not None:
        told["image"] = shown_name(Path(task.image))
    if task.again:
        told["again"] = task.again
    return told


def reference(cell: Cell) -> ReferenceValue | None:
    """What was published for the cell, if it was."""
    if cell.macro is not None:
        return _published_system(cell, cell.macro)
    column = probe_kind(cell.probe).column
    if cell.reference is None or column is None:
        return None
    table = reference_table(cell.reference)
    if column not in table.columns:
        return None
    return ReferenceValue(table=table.id, value=table.average(column), overhead=table.overhead(column), unit=table.unit)


def _published_system(cell: Cell, task: MacroTask) -> ReferenceValue | None:
    if cell.reference is None or task.again:
        return None
    table = published_systems()[cell.reference]
    row = table.row(kernel_spec(cell.kernel).name, probe_kind(cell.probe).name)
    if row is None:
        return None
    overhead = table.difference(row) if row.overhead is None else row.overhead
    return (
        None if overhead is None else ReferenceValue(table=table.id, value=row.real, overhead=overhead, unit=table.unit)
    )
