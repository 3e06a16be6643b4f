# SPDX-License-Identifier: GPL-2.0-only
"""How a run's benchmarks of calls are printed: as lists of 2005, as the mail's tables of 2009, or as List 15."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.benchmarks.calls.report.capability_layout import (
    capability_findings,
    capability_sheet,
    shows_capabilities,
)
from orchestrator.benchmarks.calls.report.charts import list_chart, mail_chart
from orchestrator.benchmarks.calls.report.findings import call_findings
from orchestrator.benchmarks.calls.report.kernels_layout import (
    differs_in_kernel_only,
    is_comparable,
    kernel_findings,
    kernels_sheet,
)
from orchestrator.benchmarks.calls.report.list_layout import list_sheet
from orchestrator.benchmarks.calls.report.mail_layout import fits_mail, mail_sheet
from orchestrator.benchmarks.calls.report.points_layout import points_sheet, shows_points
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.chart import Chart
from orchestrator.report.findings import Finding
from orchestrator.report.panel import Group, Panel, by_kernel, file_name, parameters
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import CellRecord

_BENCHMARKS = ("gtodbench", "syscall", "workload")
_APART = ("call", "workload", "at", "image", "channel", "kernel_modules")


class CallsReport:
    """A table for each kernel and handler; tables of one mail stand side by side."""

    def owns(self, benchmark: str) -> bool:
        """Whether it times calls."""
        return benchmark in _BENCHMARKS

    def apart(self, cell: CellRecord) -> tuple[object, ...]:
        """Return the handler, the call and its point, and how the guest was reached."""
        if "points" in cell.parameters:
            return cell.handler, *parameters(cell, ["points", *(name for name in _APART if name != "at")])
        return cell.handler, *parameters(cell, _APART)

    def panels(self, cells: Sequence[CellRecord]) -> Iterable[Panel]:
        """Return a panel for each kernel."""
        return by_kernel(cells)

    def joins(self, panel: Panel, group: Group) -> bool:
        """Whether both are of one mail, and the group has not this table of it yet; or differ in their kernel only."""
        # What costs least to see is asked first: a run of 1000 points has half a million pairs of panels.
        if not panel.references:
            return differs_in_kernel_only(panel, group) and all(map(_is_comparable, (panel, *group)))
        if not all(fits_mail(one) for one in (panel, *group)):
            return False
        another = all(panel.references != other.references for other in group)
        return another and _shared(panel) == _shared(group[0])

    def sheet(self, group: Group) -> Sheet:
        """Return the group in the layout of the document it is compared with; without one, as a list of 2005."""
        if fits_mail(group[0]):
            return mail_sheet(group)
        if len(group) > 1:
            return kernels_sheet(group)
        (panel,) = group
        if shows_points(panel):
            return points_sheet(panel)
        return capability_sheet(panel) if shows_capabilities(panel) else list_sheet(panel)

    def findings(self, group: Group) -> Iterable[Finding]:
        """Return the largest overhead, its ratio beside the published one, and what is not decided."""
        if shows_capabilities(group[0]):
            return capability_findings(group[0])
        if len(group) > 1 and _is_comparable(group[0]):
            return [*kernel_findings(group), *call_findings(group)]
        return call_findings(group)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return the chart of the probes' overheads; none of List 15, and of all functions."""
        if shows_capabilities(group[0]) or shows_points(group[0]):
            return {}
        if all(cell.probe == BASELINE for panel in group for cell in panel.cells):
            return {}
        if fits_mail(group[0]):
            return {file_name(group): mail_chart(group)}
        names = [f"{file_name([panel])}-{panel.kernel}" if len(group) > 1 else file_name(group) for panel in group]
        return {name: list_chart(panel) for name, panel in zip(names, group, strict=True)}


def _is_comparable(panel: Panel) -> bool:
    """Whether it can stand beside another kernel's: a list, and neither List 15 nor functions."""
    return is_comparable(panel) and not shows_capabilities(panel) and not shows_points(panel)


def _shared(panel: Panel) -> tuple[object, ...]:
    """What the parts of one table have in common."""
    first = panel.first
    document = panel.reference.document_id if panel.reference else None
    return document, first.smp, first.benchmark, first.metric, first.handler, first.clock


REPORT = CallsReport()
