# SPDX-License-Identifier: GPL-2.0-only
"""The table of calls on several CPUs in turns: a row for each probe and handler, a column for each number of CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.benchmarks.calls.tables.layout import Layout, benchmark_title, called, probe_title
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.plain_text import counted
from orchestrator.report.chart import Curve, CurveChart, CurvePane
from orchestrator.report.columns import Columns, Figure, columns_of
from orchestrator.report.figures import NOTHING, figure, number
from orchestrator.report.grid import Row
from orchestrator.report.highlights import Highlight, Rank
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    CellGroup,
    processors,
)
from orchestrator.results.contract import CellRecord
from orchestrator.results.parameters import (
    CONTENDED,
    IN_TURNS,
    MOVED,
    MOVED_BY,
    NumberParameter,
)

_FIGURES = {
    MOVED: "lines that a call gets from other CPUs",
    CONTENDED: "accesses of a call to contended lines",
}


def shows_turns(group: CellGroup) -> bool:
    """Whether CPUs make the group's calls in turns."""
    return IN_TURNS in group.first.parameters


class _Rows:
    """The cells of a table by row and number of CPUs; what rows have in common is not in their names."""

    def __init__(self, groups: Sequence[CellGroup]) -> None:
        self.cells = [cell for group in groups for cell in group.cells]
        self.sizes = sorted({cell.smp for cell in self.cells})
        probed = [cell for cell in self.cells if cell.probe != BASELINE]
        self._has_handlers = len({cell.handler for cell in probed}) > 1
        self._has_kernels = len({cell.kernel for cell in self.cells}) > 1
        self.by_row: dict[str, dict[int, CellRecord]] = {}
        for cell in self.cells:
            self.by_row.setdefault(self.name(cell), {}).setdefault(cell.smp, cell)
        # Each handler has a baseline of its own: all make the same calls.
        self.shown = [cell for by_size in self.by_row.values() for cell in by_size.values()]

    def name(self, cell: CellRecord) -> str:
        """The probe, with the handler and the kernel where rows differ in them."""
        handler = f", {cell.handler}" if self._has_handlers and cell.probe != BASELINE else ""
        kernel = f", {cell.kernel}" if self._has_kernels else ""
        return f"{probe_title(cell)}{handler}{kernel}"

    def curves(self, parameter: NumberParameter) -> Sequence[Curve]:
        """A curve for each row with a probe."""
        curves = []
        for name, by_size in self.by_row.items():
            points = [
                (float(size), value) for size, cell in by_size.items() if (value := parameter.of(cell)) is not None
            ]
            if points and next(iter(by_size.values())).probe != BASELINE:
                curves.append(Curve(name, points))
        return curves


def turns_sheet(groups: Sequence[CellGroup]) -> Sheet:
    """Instructions of a call, and the lines that move between CPUs, by number of CPUs."""
    rows, first = _Rows(groups), groups[0].first
    parts = [[cell for cell in rows.shown if cell.smp == size] for size in rows.sizes]
    layout = Layout(parts, lambda cell: f"{rows.name(cell)}, {processors(cell)}")

    columns = Columns(columns_of(rows.sizes, lambda size: counted(size, "CPU")))

    def block(title: str, text_of: Callable[[CellRecord], str]) -> list[Row]:
        def text(cell: CellRecord | None) -> str:
            if cell is None:
                return NOTHING
            return text_of(cell) if cell.status == "ok" else cell.status + layout.footnotes.marks(cell)

        def by_size(cells: Mapping[int, CellRecord]) -> Figure[int]:
            return lambda size: text(cells.get(size))

        by_row = rows.by_row.items()
        return [columns.title(title), *(columns.row(name, by_size(cells), depth=2) for name, cells in by_row)]

    def counts(parameter: NumberParameter) -> Callable[[CellRecord], str]:
        return lambda cell: NOTHING if (value := parameter.of(cell)) is None else number(value)

    table = f"{first.table}: " if first.table else ""
    kernels = ", ".join(dict.fromkeys(cell.kernel for cell in rows.cells))
    return layout.sheet(
        f"Calls of {called(first)} on several CPUs of {cpu(first.cpu).title}, in turns",
        [f"{table}kernel {kernels}, {benchmark_title(first)}, a call on each CPU after the other"],
        columns.grid(
            block("instructions a call", lambda cell: figure(cell.value, cell.unit)),
            block("more than without a probe", lambda cell: figure(cell.overhead, cell.unit)),
            *(block(title, counts(parameter)) for parameter, title in _FIGURES.items()),
        ),
        [
            "A line of 64 bytes moves where a CPU accesses it after another has written to it, in caches that lose "
            "nothing else. Contended lines are those that several CPUs access and one writes: in no order of the "
            "accesses can more lines move.",
            "Each CPU makes one whole call at a time. What CPUs do that wait for each other is not in the counts, and "
            "nor is time.",
            *(
                f"Lines that {name} gets on {processors(cell)}, by who accesses them: {by}."
                for name, by_size in rows.by_row.items()
                if (by := MOVED_BY.of(cell := by_size[max(by_size)])) is not None
            ),
        ],
    )


def turns_findings(groups: Sequence[CellGroup]) -> Iterator[Highlight]:
    """The rows that move most and fewest lines between the most CPUs."""
    rows = _Rows(groups)
    moved = {
        name: value
        for name, by_size in rows.by_row.items()
        if (cell := by_size.get(rows.sizes[-1])) and cell.probe != BASELINE and (value := MOVED.of(cell)) is not None
    }
    if moved:
        most, fewest = max(moved, key=moved.__getitem__), min(moved, key=moved.__getitem__)
        least = f"; {fewest} {number(moved[fewest])}" if moved[fewest] < moved[most] else ""
        lines = "line" if moved[most] == 1 else "lines"
        gets = f"a call with {most} gets {number(moved[most])} {lines} from other CPUs"
        sentence = f"On {counted(rows.sizes[-1], 'CPU')} {gets}{least}."
        yield Highlight(Rank.LARGEST, sentence, moved[most])


def turns_chart(groups: Sequence[CellGroup]) -> CurveChart:
    """Both figures of lines by the number of CPUs."""
    rows, first = _Rows(groups), groups[0].first
    panes = [CurvePane("CPUs", title, rows.curves(parameter)) for parameter, title in _FIGURES.items()]
    subtitle = f"{first.cpu}, {', '.join(dict.fromkeys(cell.kernel for cell in rows.cells))}; a count, not time"
    return CurveChart(f"Lines between CPUs that call {called(first)} in turns", subtitle, panes)
