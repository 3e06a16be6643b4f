# SPDX-License-Identifier: GPL-2.0-only
"""Kernels side by side: a row for each probe, a column for each kernel, and the difference to the first kernel.

Only exact counts are printed like this, since any difference between them is real. Times have a table for each
kernel, with their intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from orchestrator.report.kind import (
    Panel,
    time_figures,
    times_meaning,
    unit_meaning,
)
from orchestrator.report.sheet import (
    NOTHING,
    Footnotes,
    Grid,
    Row,
    Sheet,
    signed_figure,
    unit_name,
)
from orchestrator.results.contract import CellRecord
from orchestrator.results.modelled import ModelledCell


def kernels_sheet(panels: Sequence[Panel]) -> Sheet:
    """A panel of each kernel, side by side."""
    first, parts = panels[0].first, [panel.cells for panel in panels]
    layout = Layout(parts, lambda cell: f"{probe_title(cell)} on {cell.kernel}")
    # The words alone where they tell a kernel from the first one.
    names = [panel.kernel.removeprefix(first.kernel if "+" not in first.kernel else "") for panel in panels[1:]]
    headings = [name if name.startswith("+") else panel.kernel for name, panel in zip(names, panels[1:], strict=True)]
    compared = [text for heading in headings for text in (heading, "difference", "")]
    return layout.sheet(
        f"Overhead of probes on {cpu(first.cpu).title}, on {len(panels)} kernels",
        list(conditions_on_kernels(panels)),
        Grid([panels[0].kernel, *compared], list(_kernel_blocks(panels, layout.footnotes))),
        [
            f"Differences are to {panels[0].kernel}. {unit_meaning(panels[0])}",
            *times_meaning(panels, lambda cell: f"{probe_title(cell)} on {cell.kernel}"),
            *varying_sentences(layout.cells),
            *purpose_meaning(layout.cells),
        ],
    )


def _kernel_blocks(panels: Sequence[Panel], footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    unit, blank = unit_name(panels[0].first.unit), [""] * (3 * len(panels) - 2)
    by_probe = [{cell.probe: cell for cell in panel.cells} for panel in panels]
    firsts = {cell.probe: cell for panel in reversed(panels) for cell in panel.cells}
    probes = dict.fromkeys(cell.probe for panel in panels for cell in panel.cells)
    rows = {probe: [panel.get(probe) for panel in by_probe] for probe in probes}
    titles = {probe: probe_title(firsts[probe]) for probe in probes}
    values = [
        Row(titles[probe], list(_values(cells, lambda cell: cell.value, footnotes))) for probe, cells in rows.items()
    ]
    yield [Row(f"a call({unit})", blank, "bold"), *values]
    overheads: list[Row] = []
    for probe, cells in rows.items():
        if probe != BASELINE and any(cell and cell.overhead is not None for cell in cells):
            names = purpose_names([cell for cell in cells if cell is not None])
            overheads.append(Row(titles[probe], list(_values(cells, overhead_of))))
            overheads += [Row(f"  {purpose_title(name)}", list(_values(cells, spent_on(name)))) for name in names]
    if overheads:
        yield [Row(f"overhead({unit})", blank, "bold"), *overheads]
    times = {
        probe: [None if cell is None else panel.time(cell) for panel, cell in zip(panels, cells, strict=True)]
        for probe, cells in rows.items()
    }
    timed = [row for probe, of in times.items() if any(of) for row in _time_rows(titles[probe], of)]
    if timed:
        yield [Row("modelled(nsec)", blank, "bold italic"), *timed]


def _time_rows(title: str, times: Sequence[ModelledCell | None]) -> Iterator[Row]:
    base = times[0] and times[0].overhead
    overheads, bands = list[str](), list[str]()
    for index, time in enumerate(times):
        overhead, low, high = time_figures(time)
        overheads.append(overhead)
        bands.append(NOTHING if time is None else f"{low} to {high}")
        if index:
            change = None if time is None or time.overhead is None or not base else time.overhead - base
            overheads += (f"{change:+.1f}", percent_of(change, base)) if change is not None and base else [NOTHING] * 2
            bands += ("", "")
    yield Row(title, overheads, "italic")
    yield Row("from, to", bands, "italic", depth=2)


def _values(
    cells: Sequence[CellRecord | None], value_of: FigureOf, footnotes: Footnotes | None = None
) -> Iterator[str]:
    base = None if cells[0] is None else value_of(cells[0])
    for index, cell in enumerate(cells):
        yield cell_figure(cell, value_of, footnotes)
        value = None if cell is None else value_of(cell)
        if index and (cell is None or value is None or base is None):
            yield from (NOTHING, NOTHING)
        elif index and cell is not None and value is not None and base is not None:
            yield signed_figure(value - base, cell.unit)
            yield percent_of(value - base, base) if base > 0 else NOTHING
