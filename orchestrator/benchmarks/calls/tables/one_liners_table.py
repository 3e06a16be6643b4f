# SPDX-License-Identifier: GPL-2.0-only
"""bpftrace one-liners: a row for each, and for each kernel the cost of a hit and what the kernel says is attached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from orchestrator.benchmarks.calls.tables.layout import (
    FigureOf,
    Layout,
    bpftrace_versions,
    cell_figure,
    conditions_on_kernels,
    modelled_figure,
    overhead_of,
    probe_title,
    purpose_sentences,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import NOTHING
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    CellGroup,
    times_meaning,
    unit_meaning,
)
from orchestrator.results import parameters


def one_liners_sheet(groups: Sequence[CellGroup]) -> Sheet:
    """A group of each kernel, side by side, with what bpftrace attaches there."""
    first, parts = groups[0].first, [group.cells for group in groups]
    layout = Layout(parts, lambda cell: f"{probe_title(cell)} on {cell.kernel}")
    shows_times = any(group.time(cell) for group in groups for cell in group.cells)
    each = [list(_columns(group, layout.footnotes, shows_times=shows_times)) for group in groups]
    table = Columns([column for columns in each for column in columns], together=len(each[0]))
    titles = dict.fromkeys(probe_title(cell) for part in parts for cell in part)
    return layout.sheet(
        f"What bpftrace attaches, and the overhead of a hit, on {cpu(first.cpu).title}",
        [*conditions_on_kernels(groups), "the baseline's figure is a whole call's"],
        table.grid(table.row(title, title) for title in titles),
        [
            "The kernel says what is attached; its name is that of the list of probes.",
            unit_meaning(groups[0]),
            *times_meaning(groups, probe_title),
            *purpose_sentences(layout.cells, probe_title),
        ],
    )


def _columns(group: CellGroup, footnotes: Footnotes, *, shows_times: bool) -> Iterator[Column[str]]:
    """The columns of one kernel; a row's item is a one-liner's title."""
    cells = {probe_title(cell): cell for cell in group.cells}

    def cost(title: str) -> str:
        cell = cells.get(title)
        value_of: FigureOf = attrgetter("value") if cell is not None and cell.probe == BASELINE else overhead_of
        return cell_figure(cell, value_of, footnotes)

    def attached(title: str) -> str:
        cell = cells.get(title)
        return NOTHING if cell is None else parameters.ATTACHED.of(cell) or NOTHING

    yield Column(group.kernel, cost)
    if shows_times:
        yield Column("modelled(nsec)", lambda title: modelled_figure(group, cells.get(title)))
    yield Column(f"attached by {bpftrace_versions(group.cells)}", attached)
