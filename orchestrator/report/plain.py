# SPDX-License-Identifier: GPL-2.0-only
"""The table of cells without a layout, such as those of another version's benchmark: a row for each cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.report.chart import Chart
from orchestrator.report.evidence import proof_lists
from orchestrator.report.figures import NOTHING, figure, published_figure, unit_name
from orchestrator.report.findings import Finding, overhead_findings
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Group, Panel
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import INDICATION, processors, unit_meaning
from orchestrator.results.contract import CellRecord


class PlainReport:
    """Uses the result contract only: rows are named by the cells' ids, which are unique in a run."""

    def owns(self, benchmark: str) -> bool:
        """Every benchmark."""
        del benchmark
        return True

    def apart(self, cell: CellRecord) -> None:
        """Return None: ids distinguish the rows."""
        del cell

    def panels(self, cells: Sequence[CellRecord]) -> list[Panel]:
        """Return one panel, across kernels."""
        return [Panel(cells, cells[0].kernel)]

    def joins(self, panel: Panel, group: Group) -> bool:
        """Never."""
        del panel, group
        return False

    def sheet(self, group: Group) -> Sheet:
        """Return the group's only panel as a table of values and overheads."""
        (panel,) = group
        first, unit = panel.first, unit_name(panel.first.unit)
        footnotes = Footnotes(panel.cells, _name, lambda _: None)
        table = f"{first.table}: " if first.table else ""
        indication = f"; {INDICATION}" if panel.emulated else ""
        return Sheet(
            title=first.benchmark,
            facts=[f"{table}{first.cpu}, {processors(first)}, {first.metric} in {first.unit}{indication}"],
            grid=Grid(
                [f"value({unit})", f"overhead({unit})", f"95 % from({unit})", f"95 % to({unit})", "published overhead"],
                [[Row(_name(cell), list(_figures(cell, footnotes))) for cell in panel.cells]],
            ),
            sentences=["This version has no layout for these cells: each has a row.", unit_meaning(panel)],
            footnotes=footnotes.all(),
            proofs=proof_lists(panel.cells, _name),
        )

    def findings(self, group: Group) -> Iterator[Finding]:
        """Return the largest overhead, and what is not decided."""
        return overhead_findings(
            [cell for panel in group for cell in panel.cells], _name, group[0].place(group[0].first.table)
        )

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """None: only its kind can choose the cells that a chart compares."""
        del group
        return {}


def _figures(cell: CellRecord, footnotes: Footnotes) -> Iterator[str]:
    value = cell.status if cell.value is None else figure(cell.value, cell.unit)
    yield value + footnotes.marks(cell)
    yield figure(cell.overhead, cell.unit)
    low, high = cell.interval or (None, None)
    yield figure(low, cell.unit)
    yield figure(high, cell.unit)
    published = cell.reference
    yield f"{published_figure(published.overhead)} {unit_name(published.unit)}" if published else NOTHING


def _name(cell: CellRecord) -> str:
    return cell.id
