# SPDX-License-Identifier: GPL-2.0-only
"""The layout of the mail of 2009: a row for each probe, and a document's published tables side by side.

Each has measured and published overheads, their ratios to one probe's, and the rates if the document has rates.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.report.kind import (
    Panel,
    other_kernel,
    source,
    time_figures,
    times_meaning,
)
from orchestrator.report.sheet import (
    NOTHING,
    Footnotes,
    Grid,
    Row,
    Sheet,
    figure,
    ratio_figure,
    unit_name,
)
from orchestrator.results.contract import CellRecord


@dataclass(frozen=True)
class _Half:
    panel: Panel
    table: ReferenceTable
    cells: dict[str, CellRecord]
    shows_times: bool

    def columns(self, label: str, footnotes: Footnotes) -> dict[str, str]:
        to = self.table.compared_with
        first, cell, base = self.panel.first, self.cells.get(label), self.cells.get(to)
        overhead, compared = (
            self.table.overhead(column) if column in self.table.columns else None for column in (label, to)
        )
        rate = self.table.rate(label) if label in self.table.rates else NOTHING
        low, high = (None if cell is None or cell.status != "ok" else cell.interval) or (None, None)
        bounds = {"95 % from": figure(low, first.unit), "95 % to": figure(high, first.unit)}
        columns = {
            unit_name(first.unit): cell_figure(cell, footnotes=footnotes),
            **(bounds if first.clock == "wall" else {}),
            **(self._times(cell, base) if self.shows_times else {}),
            **({f"published {self.table.rate_unit}": rate} if self.table.rates else {}),
            # The mail prints every figure to two decimals.
            f"published {unit_name(self.table.unit)}": NOTHING if overhead is None else f"{overhead:.2f}",
            f"{COUNTED if self.shows_times else ''}ratio": overhead_ratio(cell, base),
            "published ratio": ratio_figure(overhead, compared),
        }
        return {f"{self.table.name} {heading}": text for heading, text in columns.items()}

    def _times(self, cell: CellRecord | None, base: CellRecord | None) -> dict[str, str]:
        unit = "us" if self.table.unit == "us" else "ns"
        time, other_cell = (None if measured is None else self.panel.time(measured) for measured in (cell, base))
        overhead, low, high = time_figures(time, unit)
        band = NOTHING if time is None else f"{low} to {high}"
        return {
            f"modelled {unit_name(unit)}": overhead,
            "band": band,
            "modelled ratio": modelled_ratio(time, other_cell),
        }

    def conditions(self, footnotes: Footnotes) -> str:
        baselines = [
            (cell.kernel if self.panel.elsewhere(cell) else heading(cell))
            + f"{footnotes.marks(cell)} "
            + (figure(cell.value, cell.unit) if cell.value is not None else cell.status)
            for cell in self.panel.cells
            if cell.probe == BASELINE
        ]
        return f"{conditions(self.panel)}; baseline {', '.join(baselines) or 'not measured'}"


def mail_sheet(panels: Sequence[Panel]) -> Sheet:
    """The panels of the mail's published tables, side by side."""
    shows_times = any(panel.time(cell) for panel in panels for cell in panel.cells)
    halves = [
        _Half(panel, panel.reference, {mail_label(cell): cell for cell in probed(panel)}, shows_times)
        for panel in panels
        if panel.reference is not None
    ]
    owner = {cell.id: half for half in halves for cell in half.panel.cells}

    def name(cell: CellRecord) -> str:
        label = probe_title(cell) if cell.probe == BASELINE else mail_label(cell)
        return f"{owner[cell.id].table.name} {label}"

    layout = Layout([half.panel.cells for half in halves], name, lambda cell: other_kernel(owner[cell.id].panel, cell))
    first, footnotes = halves[0], layout.footnotes
    processors = dict.fromkeys(cpu(half.panel.first.cpu).title for half in halves)
    labels = dict.fromkeys(column for half in halves for column in half.table.columns)
    # The mail separates kprobes and kretprobes, in names such as kprobe+optimized.
    is_split = all("+" in half.table.compared_with for half in halves)
    blocks = [list(labels) for _, labels in groupby(labels, lambda label: is_split and label.partition("+")[0])]
    blocks.append(list(dict.fromkeys(label for half in halves for label in half.cells if label not in labels)))
    rows = [
        [Row(label, [text for half in halves for text in half.columns(label, footnotes).values()]) for label in block]
        for block in blocks
        if block
    ]
    headings = [heading for half in halves for heading in half.columns("", footnotes)]
    return layout.sheet(
        first.table.figure,
        [f"Overhead of probes on {', '.join(processors)}", *(half.conditions(footnotes) for half in halves)],
        Grid(headings, rows, together=len(headings) // len(halves), narrowest=15),
        [
            *(source(half.table.id) for half in halves),
            comparison_meaning(first.panel),
            *times_meaning([half.panel for half in halves], name),
            *purpose_sentences(layout.cells, name),
        ],
    )


def mail_label(cell: CellRecord) -> str:
    """The document's name of the cell's probe."""
    return published_column(cell.probe) or cell.probe
