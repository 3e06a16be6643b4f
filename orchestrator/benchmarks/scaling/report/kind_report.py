# SPDX-License-Identifier: GPL-2.0-only
"""The report of benchmarks of many probes: a column for each kernel, a row for each number of probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.benchmarks.scaling.report.charts import kernels_charts, model_charts
from orchestrator.benchmarks.scaling.report.findings import scaling_findings
from orchestrator.benchmarks.scaling.report.layout import kernels_sheet
from orchestrator.benchmarks.scaling.report.load_layout import BENCHMARK as LOAD
from orchestrator.benchmarks.scaling.report.load_layout import load_sheet
from orchestrator.benchmarks.scaling.report.model_layout import BENCHMARK as MODEL
from orchestrator.benchmarks.scaling.report.model_layout import model_sheet
from orchestrator.benchmarks.scaling.report.scaling_cells import place_of
from orchestrator.benchmarks.scaling.rows import scaling_benchmark, scaling_row
from orchestrator.report.chart import Chart
from orchestrator.report.findings import Finding
from orchestrator.report.panel import Group, Panel, by_kernel, parameters
from orchestrator.report.plain import PlainReport
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import CellRecord

_APART = ("probes", "image", "channel")


class ScalingReport:
    """A table for each machine and benchmark; of the model, one for each kernel."""

    def owns(self, benchmark: str) -> bool:
        """Whether it is a benchmark of many probes."""
        return scaling_benchmark(benchmark) is not None

    def apart(self, cell: CellRecord) -> tuple[object, ...]:
        """Return the handler, the number of probes, and how the guest was reached."""
        return cell.handler, *parameters(cell, _APART)

    def panels(self, cells: Sequence[CellRecord]) -> Iterable[Panel]:
        """Return a panel for each kernel."""
        return by_kernel(cells)

    def joins(self, panel: Panel, group: Group) -> bool:
        """Whether no cell of the group has the place (kernel, row, number of probes) of a cell of the panel."""
        taken = {place_of(cell) for other in group for cell in other.cells}
        return _shared(panel) == _shared(group[0]) and not any(place_of(cell) in taken for cell in panel.cells)

    def sheet(self, group: Group) -> Sheet:
        """Return the group as one table; a plain one where it has no row of the catalogue, as with a baseline alone."""
        cells = [cell for panel in group for cell in panel.cells]
        if not any(scaling_row(cell.probe) for cell in cells):
            return PlainReport().sheet([Panel(cells, group[0].kernel)])
        if group[0].first.benchmark == LOAD:
            return load_sheet(group)
        return model_sheet(group) if _is_model(group[0]) else kernels_sheet(group)

    def findings(self, group: Group) -> Iterable[Finding]:
        """Return on which kernel the most probes cost most, and how the cost of one grows with their number."""
        return scaling_findings(group)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return curves over the number of probes; none without two numbers."""
        if group[0].first.benchmark == LOAD:
            return {}
        drawn = model_charts(group) if _is_model(group[0]) else kernels_charts(group)
        return {name: chart for name, chart in drawn.items() if any(pane.curves for pane in chart.panes)}


def _is_model(panel: Panel) -> bool:
    return panel.first.benchmark == MODEL


def _shared(panel: Panel) -> tuple[object, ...]:
    """What the numbers of probes in one table have in common; the kernel too for the model, which has one a table."""
    first = panel.first
    kernel = panel.kernel if _is_model(panel) else None
    return first.benchmark, first.cpu, first.smp, first.clock, first.parameters.get("seed"), kernel


REPORT = ScalingReport()
