# SPDX-License-Identifier: GPL-2.0-only
"""The layout of the mail of 2009: a row for each probe, and a document's published tables side by side.

Each has measured and published overheads, their ratios to one probe's, and the rates if the document has rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from orchestrator.benchmarks.calls.tables.layout import (
    COUNTED,
    Layout,
    cell_figure,
    comparison_meaning,
    conditions,
    heading,
    modelled_ratio,
    overhead_ratio,
    probe_title,
    probed,
    purpose_sentences,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, published_column
from orchestrator.catalog.published_tables import ReferenceTable
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import NOTHING, figure, ratio_figure, unit_name
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    CellGroup,
    other_kernel,
    source,
    time_figures,
    times_meaning,
)
from orchestrator.results.contract import CellRecord
from orchestrator.results.modelled import ModelledCell


@dataclass(frozen=True)
class _Half:
    group: CellGroup
    table: ReferenceTable
    cells: dict[str, CellRecord]
    shows_times: bool

    def columns(self, footnotes: Footnotes) -> list[Column[str]]:
        """The columns of this table; a row's item is the document's name of a probe."""
        columns = [
            self._column(
                unit_name(self.group.first.unit), lambda name: cell_figure(self.cells.get(name), footnotes=footnotes)
            ),
            *(self._bounds() if self.group.first.clock == "wall" else ()),
            *(self._times() if self.shows_times else ()),
        ]
        if self.table.rates:
            columns.append(self._column(f"published {self.table.rate_unit}", self._rate))
        return [
            *columns,
            self._column(f"published {unit_name(self.table.unit)}", self._published),
            self._column(f"{COUNTED if self.shows_times else ''}ratio", self._ratio),
            self._column("published ratio", self._published_ratio),
        ]

    def _column(self, heading: str, text: Callable[[str], str]) -> Column[str]:
        return Column(f"{self.table.name} {heading}", text)

    def _bounds(self) -> Iterator[Column[str]]:
        def bound(end: int) -> Callable[[str], str]:
            def text(name: str) -> str:
                cell = self.cells.get(name)
                interval = None if cell is None or cell.status != "ok" else cell.interval
                return figure(interval and interval[end], self.group.first.unit)

            return text

        yield self._column("95 % from", bound(0))
        yield self._column("95 % to", bound(1))

    def _times(self) -> Iterator[Column[str]]:
        unit = "us" if self.table.unit == "us" else "ns"

        def band(name: str) -> str:
            _, low, high = time_figures(self._time(name), unit)
            return NOTHING if self._time(name) is None else f"{low} to {high}"

        yield self._column(f"modelled {unit_name(unit)}", lambda name: time_figures(self._time(name), unit)[0])
        yield self._column("band", band)
        base = self.table.compared_with
        yield self._column("modelled ratio", lambda name: modelled_ratio(self._time(name), self._time(base)))

    def _time(self, name: str) -> ModelledCell | None:
        cell = self.cells.get(name)
        return None if cell is None else self.group.time(cell)

    def _rate(self, name: str) -> str:
        return self.table.rate(name) if name in self.table.rates else NOTHING

    def _overhead(self, name: str) -> float | None:
        return self.table.overhead(name) if name in self.table.columns else None

    def _published(self, name: str) -> str:
        # The mail prints every figure to two decimals.
        overhead = self._overhead(name)
        return NOTHING if overhead is None else f"{overhead:.2f}"

    def _ratio(self, name: str) -> str:
        return overhead_ratio(self.cells.get(name), self.cells.get(self.table.compared_with))

    def _published_ratio(self, name: str) -> str:
        return ratio_figure(self._overhead(name), self._overhead(self.table.compared_with))

    def conditions(self, footnotes: Footnotes) -> str:
        baselines = [
            (cell.kernel if self.group.elsewhere(cell) else heading(cell))
            + f"{footnotes.marks(cell)} "
            + (figure(cell.value, cell.unit) if cell.value is not None else cell.status)
            for cell in self.group.cells
            if cell.probe == BASELINE
        ]
        return f"{conditions(self.group)}; baseline {', '.join(baselines) or 'not measured'}"


def mail_sheet(groups: Sequence[CellGroup]) -> Sheet:
    """The groups of the mail's published tables, side by side."""
    shows_times = any(group.time(cell) for group in groups for cell in group.cells)
    halves = [
        _Half(group, group.reference, {mail_label(cell): cell for cell in probed(group)}, shows_times)
        for group in groups
        if group.reference is not None
    ]
    owner = {cell.id: half for half in halves for cell in half.group.cells}

    def name(cell: CellRecord) -> str:
        label = probe_title(cell) if cell.probe == BASELINE else mail_label(cell)
        return f"{owner[cell.id].table.name} {label}"

    layout = Layout([half.group.cells for half in halves], name, lambda cell: other_kernel(owner[cell.id].group, cell))
    first, footnotes = halves[0], layout.footnotes
    processors = dict.fromkeys(cpu(half.group.first.cpu).title for half in halves)
    labels = dict.fromkeys(column for half in halves for column in half.table.columns)
    # The mail separates kprobes and kretprobes, in names such as kprobe+optimized.
    is_split = all("+" in half.table.compared_with for half in halves)
    blocks = [list(labels) for _, labels in groupby(labels, lambda label: is_split and label.partition("+")[0])]
    blocks.append(list(dict.fromkeys(label for half in halves for label in half.cells if label not in labels)))
    columns = [column for half in halves for column in half.columns(footnotes)]
    table = Columns(columns, together=len(columns) // len(halves), narrowest=15)
    return layout.sheet(
        first.table.figure,
        [f"Overhead of probes on {', '.join(processors)}", *(half.conditions(footnotes) for half in halves)],
        table.grid(*([table.row(label, label) for label in block] for block in blocks)),
        [
            *(source(half.table.id) for half in halves),
            comparison_meaning(first.group),
            *times_meaning([half.group for half in halves], name),
            *purpose_sentences(layout.cells, name),
        ],
    )


def mail_label(cell: CellRecord) -> str:
    """The document's name of the cell's probe."""
    return published_column(cell.probe) or cell.probe
