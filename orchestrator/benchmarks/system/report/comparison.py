# SPDX-License-Identifier: GPL-2.0-only
"""How the cells of a whole-system workload compare with their baselines and with published figures."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.benchmarks.system.published import PublishedSystem, PublishedWork, published_systems
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.panel import Panel
from orchestrator.results.contract import CellRecord

EVENTS = "events_a_run"
"""The parameter of a recording cell: events recorded in a warm run, the median."""


def row_title(panel: Panel, cell: CellRecord) -> str:
    """Return the title of a cell's row: its kernel, its probe, or the A/A boot."""
    aa_boot = cell.parameters.get("again")
    if aa_boot:
        return "A/A boot" if aa_boot == 1 else f"A/A boot {aa_boot}"
    if cell.probe == BASELINE:
        return cell.kernel
    return cell.probe if cell.kernel == panel.kernel else f"{cell.probe}, {cell.kernel}"


def cold_percent(panel: Panel, cell: CellRecord) -> float | None:
    """Return the difference of a cell's cold run to the baseline's, in per cent."""
    cold, base = parameter(cell, "cold"), parameter(panel.first, "cold")
    return None if cold is None or not base else 100 * (cold - base) / base


def percent(cell: CellRecord, value: float | None) -> float | None:
    """Return a part of a cell's work as per cent of the baseline's; None where there is none."""
    if value is None or cell.value is None or cell.overhead is None:
        return None
    base = cell.value - cell.overhead
    return 100 * value / base if base > 0 else None


def parameter(cell: CellRecord, name: str) -> float | None:
    """Return a number among a cell's parameters."""
    value = cell.parameters.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def per_event(panel: Panel, cell: CellRecord) -> float | None:
    """Return the cost of each event recorded in a warm run, over the same kernel without recording."""
    events, own = parameter(cell, EVENTS), own_overhead(panel, cell)
    return own / events if events and own is not None and cell.verdict != "none" else None


def own_overhead(panel: Panel, cell: CellRecord) -> float | None:
    """Return the difference to the baseline of the cell's own kernel; None where that was not measured."""
    own = next((one for one in panel.cells if one.kernel == cell.kernel and _alone(one)), None)
    return None if own is None or own.value is None or cell.value is None else cell.value - own.value


def is_baseline(panel: Panel, cell: CellRecord) -> bool:
    """Whether it is the cell that all others are compared with."""
    return cell.kernel == panel.kernel and _alone(cell)


def _alone(cell: CellRecord) -> bool:
    return cell.probe == BASELINE and not cell.parameters.get("again")


def published_table(cells: Sequence[CellRecord]) -> PublishedSystem | None:
    """Return the published table that the cells are compared with, if there is one."""
    named = next((cell.reference.table for cell in cells if cell.reference), None)
    return published_systems().get(named) if named else None


def published_row(table: PublishedSystem | None, cell: CellRecord) -> PublishedWork | None:
    """Return the published row of a cell; None for an A/A boot."""
    if table is None or cell.parameters.get("again"):
        return None
    return table.row(cell.kernel, cell.probe)
