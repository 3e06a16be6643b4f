# SPDX-License-Identifier: GPL-2.0-only
"""The report of marked loops: in the order of the document of 2006."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.benchmarks.markers.report.charts import marker_charts
from orchestrator.benchmarks.markers.report.layout import marker_findings, markers_sheet
from orchestrator.report.chart import Chart
from orchestrator.report.findings import Finding
from orchestrator.report.panel import Group, Panel, by_kernel, parameters
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import CellRecord

_BENCHMARK = "markers"
_APART = ("image", "channel")


class MarkersReport:
    """A table for each kernel."""

    def owns(self, benchmark: str) -> bool:
        """Whether it is the marked loops' benchmark."""
        return benchmark == _BENCHMARK

    def apart(self, cell: CellRecord) -> tuple[object, ...]:
        """Return the handler, and how the guest was reached."""
        return cell.handler, *parameters(cell, _APART)

    def panels(self, cells: Sequence[CellRecord]) -> Iterable[Panel]:
        """Return a panel for each kernel; loops that only another kernel has stand with the others."""
        return by_kernel(cells)

    def joins(self, panel: Panel, group: Group) -> bool:
        """Never."""
        del panel, group
        return False

    def sheet(self, group: Group) -> Sheet:
        """Return the group's only panel as the document's table."""
        (panel,) = group
        return markers_sheet(panel)

    def findings(self, group: Group) -> Iterable[Finding]:
        """Return the loop that costs most, and the document's last conclusion beside what it published."""
        (panel,) = group
        return marker_findings(panel)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return a chart for each group of loops."""
        (panel,) = group
        return marker_charts(panel)


REPORT = MarkersReport()
