# SPDX-License-Identifier: GPL-2.0-only
"""How a cell's outcome becomes a record of the result contract."""

from __future__ import annotations

from pathlib import Path

from orchestrator.catalog.kpcache import mass_benchmark, mass_row
from orchestrator.catalog.own_probe import shown_name
from orchestrator.catalog.own_workload import find_workload
from orchestrator.catalog.probes import probe_kind
from orchestrator.catalog.reference import reference_table
from orchestrator.experiment.plan import Cell
from orchestrator.experiment.supplies import Supplies
from orchestrator.results.contract import PER_CALL, PER_LOOP, PER_RUN, UNITS, CellRecord, ReferenceValue, Status


def without_number(supplies: Supplies, cell: Cell, status: Status, reason: str) -> CellRecord:
    """The outcome of a cell that has no number, with the reason."""
    return CellRecord(**identity(supplies, cell), status=status, reason=reason)


def identity(supplies: Supplies, cell: Cell) -> dict[str, object]:
    """The fields that tell a cell from all others."""
    return {
        "id": cell.id,
        "table": cell.table,
        "cpu": cell.cpu,
        "smp": cell.smp,
        "kernel": supplies.kernel.spec.name,
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
    if cell.image is not None:
        told["image"] = shown_name(Path(cell.image))
    if cell.channel != "framed":
        told["channel"] = cell.channel
    return told


def reference(cell: Cell) -> ReferenceValue | None:
    """What was published for the cell, if it was."""
    column = probe_kind(cell.probe).column
    if cell.reference is None or column is None:
        return None
    table = reference_table(cell.reference)
    if column not in table.columns:
        return None
    return ReferenceValue(table=table.id, value=table.average(column), overhead=table.overhead(column), unit=table.unit)
