# SPDX-License-Identifier: GPL-2.0-only
"""The report of benchmarks of calls: which cells share a table, what the table shows in a sentence, and its charts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.charts import kernels_chart, list_chart, mail_chart
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
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    CellGroup,
    TableReport,
    file_name,
    values_of,
)
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

    def table_key(self, cell: CellRecord) -> Hashable:
        if POINTS in cell.parameters:
            return cell.handler, *values_of(cell, [POINTS, *(name for name in self.KEY_PARAMETERS if name != AT)])
        return super().table_key(cell)

    def same_table(self, group: CellGroup, groups: Sequence[CellGroup]) -> bool:
        """Whether they differ only in the kernel, or are different tables of one document in the form of a mail."""
        # The cheapest test comes first: a run of 1000 points has half a million pairs of groups.
        if shows_turns(group):
            return shows_turns(groups[0]) and _work(group) == _work(groups[0])
        if not group.references:
            first, other_cell = group.first, groups[0].first
            if (AT.of(first), first.smp, first.handler) != (AT.of(other_cell), other_cell.smp, other_cell.handler):
                return False
            is_new = _work(group) == _work(groups[0]) and all(group.kernel != compared.kernel for compared in groups)
            return is_new and all(map(_is_comparable, (group, *groups)))
        if not all(_fits_mail(fitting) for fitting in (group, *groups)):
            return False
        another = all(group.references != other_group.references for other_group in groups)
        return another and _shared(group) == _shared(groups[0])

    def sheet(self, groups: Sequence[CellGroup]) -> Sheet:
        if shows_turns(groups[0]):
            return turns_sheet(groups)
        if _fits_mail(groups[0]):
            return mail_sheet(groups)
        if any(ONE_LINER in cell.parameters for cell in groups[0].cells) and _is_comparable(groups[0]):
            return one_liners_sheet(groups)
        if len(groups) > 1:
            return kernels_sheet(groups)
        (group,) = groups
        if shows_points(group):
            return points_sheet(group)
        if shows_parts(group):
            return parts_sheet(group)
        return capability_sheet(group) if shows_capabilities(group) else list_sheet(group)

    def findings(self, groups: Sequence[CellGroup]) -> Iterator[Highlight]:
        if shows_turns(groups[0]):
            yield from turns_findings(groups)
            return
        if shows_capabilities(groups[0]):
            sentence = deviations(probed(groups[0]))
            if sentence is not None:
                rank = Rank.CONTRADICTED if sentence.startswith("Different") else Rank.PUBLISHED
                yield Highlight(rank, f"{CAPABILITIES_TITLE}: {sentence}")
            return
        if len(groups) > 1 and _is_comparable(groups[0]):
            yield from kernel_findings(groups)
        for group in groups:
            name_of_group = group.name if group.references or len(groups) == 1 else group.kernel
            place = group.place(name_of_group if len(groups) > 1 or group.first.table is not None else None)
            name = name_at_point if shows_points(group) else probe_title
            yield from overhead_findings(group.cells, name, place)
            yield from ratio_findings(group, place)
        yield from fifteen_years(groups)

    def charts(self, groups: Sequence[CellGroup]) -> Mapping[str, Chart]:
        if shows_capabilities(groups[0]) or shows_points(groups[0]) or not any(map(probed, groups)):
            return {}
        if shows_turns(groups[0]):
            return {file_name(groups[:1]): turns_chart(groups)}
        if _fits_mail(groups[0]):
            return {file_name(groups): mail_chart(groups)}
        return {file_name(groups): kernels_chart(groups) if len(groups) > 1 else list_chart(groups[0])}


def _work(group: CellGroup) -> tuple[object, ...]:
    first = group.first
    return first.table, first.cpu, first.benchmark, first.metric, *values_of(first, CallsReport.KEY_PARAMETERS)


def _fits_mail(group: CellGroup) -> bool:
    """Whether the group is compared with a table of the mail's layout, and has no probe twice."""
    probes = [cell.probe for cell in probed(group)]
    return group.reference is not None and group.reference.layout == "mail" and len(set(probes)) == len(probes)


def _is_comparable(group: CellGroup) -> bool:
    """Whether it can be printed beside another kernel's group: exact, of one kernel, and in no document's layout."""
    probes = [cell.probe for cell in group.cells]
    return (
        group.first.clock == "instructions"
        and not group.references
        and len(set(probes)) == len(probes)
        and not any(group.elsewhere(cell) for cell in group.cells)
        and all(len(set(cell.samples)) <= 1 for cell in group.cells)
        and not shows_capabilities(group)
        and not shows_points(group)
        and not shows_parts(group)
    )


def _shared(group: CellGroup) -> tuple[object, ...]:
    first, table = group.first, group.reference
    document = (table.document_id, *table.columns) if table else None
    return document, first.smp, first.benchmark, first.metric, first.handler, first.clock


REPORT = CallsReport()
