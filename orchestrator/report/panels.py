# SPDX-License-Identifier: GPL-2.0-only
"""Which cells of a run are printed in one table."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from orchestrator.report.kind import KindReport, ReportRegistry
from orchestrator.report.panel import Group, Panel
from orchestrator.results.contract import CellRecord, RunRecord


def panels(run: RunRecord, registry: ReportRegistry) -> list[Panel]:
    """Return the run's cells in panels, in the run's order."""
    alike: dict[Hashable, list[CellRecord]] = {}
    for cell in run.cells:
        apart = registry.kind_of(cell).apart(cell)
        key = (cell.table, cell.cpu, cell.smp, cell.benchmark, cell.metric, cell.clock, cell.unit, apart)
        alike.setdefault(key, []).append(cell)
    found = [panel for cells in alike.values() for panel in registry.kind_of(cells[0]).panels(cells)]
    handlers: dict[str | None, set[str]] = {}
    for panel in found:
        handlers.setdefault(panel.first.table, set()).add(panel.first.handler)
    return [
        replace(panel, handler=panel.first.handler) if len(handlers[panel.first.table]) > 1 else panel
        for panel in found
    ]


def groups(run: RunRecord, registry: ReportRegistry) -> list[tuple[KindReport, Group]]:
    """Return the panels that are printed as one table, each with the kind that prints them, in the run's order."""
    found: list[tuple[KindReport, list[Panel]]] = []
    for panel in panels(run, registry):
        kind = registry.kind_of(panel.first)
        fitting = next((group for other, group in found if other is kind and kind.joins(panel, group)), None)
        if fitting is None:
            found.append((kind, [panel]))
        else:
            fitting.append(panel)
    return [(kind, group) for kind, group in found]
