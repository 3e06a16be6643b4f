# SPDX-License-Identifier: GPL-2.0-only
"""Kernels side by side: a row for each probe, a column for each kernel, and the difference to the first kernel.

Only exact counts are printed like this, since any difference between them is real. Times have a table for each
kernel, with their intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from orchestrator.benchmarks.calls.tables.layout import (
    FigureOf,
    Layout,
    cell_figure,
    conditions_on_kernels,
    overhead_of,
    percent_of,
    probe_title,
    purpose_meaning,
    purpose_names,
    spent_on,
    varying_sentences,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.purposes import purpose_title
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import NOTHING, signed_figure, unit_name
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Row
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    CellGroup,
    time_figures,
    times_meaning,
    unit_meaning,
)
from orchestrator.results.contract import CellRecord
from orchestrator.results.modelled import ModelledCell


def kernels_sheet(groups: Sequence[CellGroup]) -> Sheet:
    """A group of each kernel, side by side."""
    first, parts = groups[0].first, [group.cells for group in groups]
    layout = Layout(parts, lambda cell: f"{probe_title(cell)} on {cell.kernel}")
    # The words alone where they tell a kernel from the first one.
    names = [group.kernel.removeprefix(first.kernel if "+" not in first.kernel else "") for group in groups[1:]]
    headings = [name if name.startswith("+") else group.kernel for name, group in zip(names, groups[1:], strict=True)]
    columns = Columns(_columns([groups[0].kernel, *headings]))
    return layout.sheet(
        f"Overhead of probes on {cpu(first.cpu).title}, on {len(groups)} kernels",
        list(conditions_on_kernels(groups)),
        columns.grid(*_kernel_blocks(columns, groups, layout.footnotes)),
        [
            f"Differences are to {groups[0].kernel}. {unit_meaning(groups[0])}",
            *times_meaning(groups, lambda cell: f"{probe_title(cell)} on {cell.kernel}"),
            *varying_sentences(layout.cells),
            *purpose_meaning(layout.cells),
        ],
    )


@dataclass(frozen=True)
class _Compared:
    """What a row has of one kernel: a figure, its difference to the first kernel's, and that in per cent of it."""

    figure: str
    difference: str = ""
    percent: str = ""


_KernelColumns = Columns[Sequence[_Compared]]
"""A row has a part for each kernel."""


def _columns(headings: Sequence[str]) -> Iterator[Column[Sequence[_Compared]]]:
    def part(index: int, name: str) -> Callable[[Sequence[_Compared]], str]:
        read: Callable[[_Compared], str] = attrgetter(name)
        return lambda compared: read(compared[index])

    for index, heading in enumerate(headings):
        yield Column(heading, part(index, "figure"))
        if index:
            yield Column("difference", part(index, "difference"))
            yield Column("", part(index, "percent"))


def _kernel_blocks(
    columns: _KernelColumns, groups: Sequence[CellGroup], footnotes: Footnotes
) -> Iterator[Sequence[Row]]:
    unit = unit_name(groups[0].first.unit)
    by_probe = [{cell.probe: cell for cell in group.cells} for group in groups]
    firsts = {cell.probe: cell for group in reversed(groups) for cell in group.cells}
    probes = dict.fromkeys(cell.probe for group in groups for cell in group.cells)
    rows = {probe: [group.get(probe) for group in by_probe] for probe in probes}
    titles = {probe: probe_title(firsts[probe]) for probe in probes}
    values = [
        columns.row(titles[probe], _values(cells, attrgetter("value"), footnotes)) for probe, cells in rows.items()
    ]
    yield [columns.title(f"a call({unit})"), *values]
    overheads: list[Row] = []
    for probe, cells in rows.items():
        if probe != BASELINE and any(cell and cell.overhead is not None for cell in cells):
            names = purpose_names([cell for cell in cells if cell is not None])
            overheads.append(columns.row(titles[probe], _values(cells, overhead_of)))
            overheads += [columns.row(f"  {purpose_title(name)}", _values(cells, spent_on(name))) for name in names]
    if overheads:
        yield [columns.title(f"overhead({unit})"), *overheads]
    times = {
        probe: [None if cell is None else group.time(cell) for group, cell in zip(groups, cells, strict=True)]
        for probe, cells in rows.items()
    }
    timed = [row for probe, of in times.items() if any(of) for row in _time_rows(columns, titles[probe], of)]
    if timed:
        yield [columns.title("modelled(nsec)", "bold italic"), *timed]


def _time_rows(columns: _KernelColumns, title: str, times: Sequence[ModelledCell | None]) -> Iterator[Row]:
    base = None if times[0] is None else times[0].overhead
    yield columns.row(title, [_compared_time(time, base) for time in times], "italic")
    yield columns.row("from, to", [_Compared(_band(time)) for time in times], "italic", depth=2)


def _compared_time(time: ModelledCell | None, base: float | None) -> _Compared:
    overhead, *_ = time_figures(time)
    if time is None or time.overhead is None or not base:
        return _Compared(overhead, NOTHING, NOTHING)
    change = time.overhead - base
    return _Compared(overhead, f"{change:+.1f}", percent_of(change, base))


def _band(time: ModelledCell | None) -> str:
    _, low, high = time_figures(time)
    return NOTHING if time is None else f"{low} to {high}"


def _values(
    cells: Sequence[CellRecord | None], value_of: FigureOf, footnotes: Footnotes | None = None
) -> Sequence[_Compared]:
    base = None if cells[0] is None else value_of(cells[0])

    def compared(cell: CellRecord | None) -> _Compared:
        text = cell_figure(cell, value_of, footnotes)
        value = None if cell is None else value_of(cell)
        if cell is None or value is None or base is None:
            return _Compared(text, NOTHING, NOTHING)
        percent = percent_of(value - base, base) if base > 0 else NOTHING
        return _Compared(text, signed_figure(value - base, cell.unit), percent)

    return list(map(compared, cells))
