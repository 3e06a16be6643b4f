# SPDX-License-Identifier: GPL-2.0-only
"""The report of benchmarks of calls: which cells share a table, what the table shows in a sentence, and its charts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.charts import list_chart, mail_chart
from orchestrator.benchmarks.calls.findings import fifteen_years, kernel_findings, ratio_findings
from orchestrator.benchmarks.calls.tables.capability_table import (
    CAPABILITIES_TITLE,
    capability_sheet,
    deviations,
    shows_capabilities,
)
from orchestrator.benchmarks.calls.tables.kernels_table import kernels_sheet
from orchestrator.benchmarks.calls.tables.layout import probe_title, probed
from orchestrator.benchmarks.calls.tables.list_table import list_sheet
from orchestrator.benchmarks.calls.tables.mail_table import mail_sheet
from orchestrator.benchmarks.calls.tables.one_liners_table import one_liners_sheet
from orchestrator.benchmarks.calls.tables.parts_table import parts_sheet, shows_parts
from orchestrator.benchmarks.calls.tables.points_table import name_at_point, points_sheet, shows_points
from orchestrator.benchmarks.calls.tables.turns_table import shows_turns, turns_chart, turns_findings, turns_sheet
from orchestrator.report.chart import Chart
from orchestrator.report.highlights import Highlight, Rank, overhead_findings
from orchestrator.report.kind import (
    Panel,
    TableReport,
    file_name,
    values_of,
)
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import CellRecord
from orchestrator.results.parameters import (
    AT,
    CALL,
    CHANNEL,
    IMAGE,
    IN_TURNS,
    KERNEL_MODULES,
    ONE_LINER,
    POINTS,
    WORKLOAD,
)


class CallsReport(TableReport):
    """A table for each kernel and handler; tables of one mail stand side by side."""

    KEY_PARAMETERS = (
        CALL,
        WORKLOAD,
        AT,
        IMAGE,
        CHANNEL,
        KERNEL_MODULES,
        IN_TURNS,
    )

    def handles(self, benchmark: str) -> bool:
        return benchmark in benchmarks()

    def group_key(self, cell: CellRecord) -> Hashable:
        if POINTS in cell.parameters:
            return cell.handler, *values_of(cell, [POINTS, *(name for name in self.KEY_PARAMETERS if name != AT)])
        return super().group_key(cell)

    def same_table(self, panel: Panel, panels: Sequence[Panel]) -> bool:
        """Whether they differ only in the kernel, or are different tables of one document in the form of a mail."""
        # The cheapest test comes first: a run of 1000 points has half a million pairs of panels.
        if shows_turns(panel):
            return shows_turns(panels[0]) and _work(panel) == _work(panels[0])
        if not panel.references:
            first, other_cell = panel.first, panels[0].first
            if (AT.of(first), first.smp, first.handler) != (AT.of(other_cell), other_cell.smp, other_cell.handler):
                return False
            is_new = _work(panel) == _work(panels[0]) and all(panel.kernel != compared.kernel for compared in panels)
            return is_new and all(map(_is_comparable, (panel, *panels)))
        if not all(_fits_mail(fitting) for fitting in (panel, *panels)):
            return False
        another = all(panel.references != other_panel.references for other_panel in panels)
        return another and _shared(panel) == _shared(panels[0])

    def sheet(self, panels: Sequence[Panel]) -> Sheet:
        if shows_turns(panels[0]):
            return turns_sheet(panels)
        if _fits_mail(panels[0]):
            return mail_sheet(panels)
        if any(ONE_LINER in cell.parameters for cell in panels[0].cells) and _is_comparable(panels[0]):
            return one_liners_sheet(panels)
        if len(panels) > 1:
            return kernels_sheet(panels)
        (panel,) = panels
        if shows_points(panel):
            return points_sheet(panel)
        if shows_parts(panel):
            return parts_sheet(panel)
        return capability_sheet(panel) if shows_capabilities(panel) else list_sheet(panel)

    def findings(self, panels: Sequence[Panel]) -> Iterator[Highlight]:
        if shows_turns(panels[0]):
            yield from turns_findings(panels)
            return
        if shows_capabilities(panels[0]):
            sentence = deviations(probed(panels[0]))
            if sentence is not None:
                rank = Rank.CONTRADICTED if sentence.startswith("Different") else Rank.PUBLISHED
                yield Highlight(rank, f"{CAPABILITIES_TITLE}: {sentence}")
            return
        if len(panels) > 1 and _is_comparable(panels[0]):
            yield from kernel_findings(panels)
        for panel in panels:
            name_of_panel = panel.name if panel.references or len(panels) == 1 else panel.kernel
            place = panel.place(name_of_panel if len(panels) > 1 or panel.first.table is not None else None)
            name = name_at_point if shows_points(panel) else probe_title
            yield from overhead_findings(panel.cells, name, place)
            yield from ratio_findings(panel, place)
        yield from fifteen_years(panels)

    def charts(self, panels: Sequence[Panel]) -> Mapping[str, Chart]:
        if shows_capabilities(panels[0]) or shows_points(panels[0]) or not any(map(probed, panels)):
            return {}
        if shows_turns(panels[0]):
            return {file_name(panels[:1]): turns_chart(panels)}
        if _fits_mail(panels[0]):
            return {file_name(panels): mail_chart(panels)}
        names = [f"{file_name([panel])}-{panel.kernel}" if len(panels) > 1 else file_name(panels) for panel in panels]
        return {name: list_chart(panel) for name, panel in zip(names, panels, strict=True)}


def _work(panel: Panel) -> tuple[object, ...]:
    first = panel.first
    return first.table, first.cpu, first.benchmark, first.metric, *values_of(first, CallsReport.KEY_PARAMETERS)


def _fits_mail(panel: Panel) -> bool:
    """Whether the panel is compared with a table of the mail's layout, and has no probe twice."""
    probes = [cell.probe for cell in probed(panel)]
    return panel.reference is not None and panel.reference.layout == "mail" and len(set(probes)) == len(probes)


def _is_comparable(panel: Panel) -> bool:
    """Whether it can be printed beside another kernel's panel: exact, of one kernel, and in no document's layout."""
    probes = [cell.probe for cell in panel.cells]
    return (
        panel.first.clock == "instructions"
        and not panel.references
        and len(set(probes)) == len(probes)
        and not any(panel.elsewhere(cell) for cell in panel.cells)
        and all(len(set(cell.samples)) <= 1 for cell in panel.cells)
        and not shows_capabilities(panel)
        and not shows_points(panel)
        and not shows_parts(panel)
    )


def _shared(panel: Panel) -> tuple[object, ...]:
    first, table = panel.first, panel.reference
    document = (table.document_id, *table.columns) if table else None
    return document, first.smp, first.benchmark, first.metric, first.handler, first.clock


REPORT = CallsReport()
