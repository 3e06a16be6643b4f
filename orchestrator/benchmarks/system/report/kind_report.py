# SPDX-License-Identifier: GPL-2.0-only
"""The report of whole-system workloads: a row for each kernel and probe, compared with one baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.benchmarks.system.report.charts import system_chart
from orchestrator.benchmarks.system.report.findings import system_findings
from orchestrator.benchmarks.system.report.layout import system_sheet
from orchestrator.benchmarks.system.workloads import system_workload
from orchestrator.report.chart import Chart
from orchestrator.report.findings import Finding
from orchestrator.report.panel import Group, Panel, file_name, parameters
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import CellRecord

_APART = ("image", "channel", "scope", "packets", "command", "memory_mib")


class SystemReport:
    """A table for each workload and machine."""

    def owns(self, benchmark: str) -> bool:
        """Whether it is a whole-system workload."""
        return system_workload(benchmark) is not None

    def apart(self, cell: CellRecord) -> tuple[object, ...]:
        """Return the workload's amount and where it ran; probes that record stand beside those that do not."""
        return parameters(cell, _APART)

    def panels(self, cells: Sequence[CellRecord]) -> list[Panel]:
        """Return one panel: kernels are compared with each other."""
        return [Panel(cells, cells[0].kernel)]

    def joins(self, panel: Panel, group: Group) -> bool:
        """Never."""
        del panel, group
        return False

    def sheet(self, group: Group) -> Sheet:
        """Return the group's only panel as a table."""
        (panel,) = group
        return system_sheet(panel)

    def findings(self, group: Group) -> Iterable[Finding]:
        """Return what costs most beside what was published, and what is not decided."""
        (panel,) = group
        return system_findings(panel)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return the chart of what instrumentation adds; none of a baseline alone."""
        (panel,) = group
        chart = system_chart(panel)
        return {} if chart is None else {file_name(group): chart}


REPORT = SystemReport()
