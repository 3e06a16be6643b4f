# SPDX-License-Identifier: GPL-2.0-only
"""How a run's readings are printed: a row for each file, beside the empty one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from example_kind.benchmark import BENCHMARK
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.columns import Column, cell_columns
from orchestrator.report.figures import NOTHING, figure, unit_name
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.highlights import Highlight, overhead_findings
from orchestrator.report.proofs import CellProof, ProofList
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import CellGroup, TableReport, file_name, processors, unit_meaning
from orchestrator.results.contract import CellRecord, WorkEvidence

_DIGEST = 16
_COLUMNS: Sequence[Column[CellRecord]] = (
    Column("a run", lambda cell: figure(cell.value, cell.unit)),
    Column("more than empty", lambda cell: figure(cell.overhead, cell.unit)),
    Column("bytes", lambda cell: str(cell.parameters.get("bytes", NOTHING))),
)


class ReadingReport(TableReport):
    """A table and a chart for each kernel."""

    def handles(self, benchmark: str) -> bool:
        return benchmark == BENCHMARK

    def sheet(self, groups: Sequence[CellGroup]) -> Sheet:
        """Return the only group as a table of files."""
        (group,) = groups
        first, footnotes = group.first, Footnotes(group.cells, _file, lambda _: None)
        table = cell_columns(_COLUMNS, footnotes, NOTHING)
        return Sheet(
            title="Reading a file",
            facts=[f"{first.cpu}, {processors(first)}, kernel {group.kernel}, a run of cat in {unit_name(first.unit)}"],
            grid=table.grid(table.row(_file(cell), cell) for cell in group.cells),
            sentences=[unit_meaning(group)],
            footnotes=footnotes.all(),
            proofs=_proofs(group),
        )

    def findings(self, groups: Sequence[CellGroup]) -> Iterable[Highlight]:
        """Return what is the most expensive to read, and where timer ticks hide that."""
        (group,) = groups
        return overhead_findings(group.cells, _file)

    def charts(self, groups: Sequence[CellGroup]) -> Mapping[str, Chart]:
        """Return a chart of what each file costs more than the empty one."""
        (group,) = groups
        shown = [cell for cell in group.cells if cell.overhead]
        if not shown:
            return {}
        bars = [Bar(cell.overhead, figure(cell.overhead, cell.unit)) for cell in shown]
        pane = (f"{unit_name(group.first.unit)} more than an empty file", [Series("", bars)])
        return {file_name(groups): BarChart("Reading a file", group.kernel, [_file(cell) for cell in shown], [pane])}


def _proofs(group: CellGroup) -> list[ProofList]:
    proofs = [
        CellProof(_file(cell), cell.work.mechanism, "", [f"{cell.work.runs} runs read the same", _digest(cell.work)])
        for cell in group.cells
        if cell.work is not None
    ]
    return [ProofList("Evidence", proofs)] if proofs else []


def _digest(work: WorkEvidence) -> str:
    return f"SHA-256 {work.digest[:_DIGEST]}"


def _file(cell: CellRecord) -> str:
    return str(cell.parameters["file"])


REPORT = ReadingReport()
