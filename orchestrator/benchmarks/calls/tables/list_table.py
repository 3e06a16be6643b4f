# SPDX-License-Identifier: GPL-2.0-only
"""The list of one kernel: a column for each probe, as in the documents of 2005."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from orchestrator.benchmarks.calls.tables.layout import (
    COUNTED,
    MODELLED,
    FigureOf,
    Layout,
    benchmark_title,
    bpftrace_versions,
    comparison_meaning,
    conditions,
    heading,
    modelled_ratio,
    overhead_of,
    overhead_ratio,
    probe_title,
    purpose_meaning,
    purpose_names,
    spent_on,
    varying_sentences,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.purposes import purpose_title
from orchestrator.report.columns import Columns, Figure, columns_of
from orchestrator.report.figures import NOTHING, figure, number, published_figure, ratio_figure, unit_name
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Row
from orchestrator.report.proofs import UNKNOWN, has_unknown_traps, traps_per_hit, unknown_traps
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    CellGroup,
    other_kernel,
    published,
    published_unit,
    source,
    time_figures,
    times_meaning,
    unit_meaning,
)
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord, centre_of
from orchestrator.results.statistics import mean

_COMPARED_WITH = "djprobe"


def list_sheet(group: CellGroup) -> Sheet:
    """A column for each probe, as in the lists of 2005: samples, their average, the overhead, what was published."""
    cells = group.cells
    overview = [f"Overhead of probes on {cpu(group.first.cpu).title}", conditions(group)]
    title, *facts = [group.reference.title, *overview] if group.reference else overview
    layout = Layout([cells], probe_title, partial(other_kernel, group))
    marks = layout.footnotes.marks
    columns = Columns(columns_of(cells, lambda cell: heading(cell) + (marks(cell) if cell.status == "ok" else "")))
    return layout.sheet(
        title,
        facts,
        columns.grid(
            _measured(columns, cells, layout.footnotes, COUNTED if group.times else ""),
            _modelled(columns, group) if any(map(group.time, cells)) else (),
            *(_published(columns, cells, table) for table in group.references),
        ),
        [
            *(source(table) for table in group.references),
            comparison_meaning(group) if group.references else unit_meaning(group),
            *times_meaning([group], probe_title),
            *varying_sentences(cells),
            *purpose_meaning(cells),
            *unknown_traps(cells, probe_title),
        ],
        heading,
    )


_CellColumns = Columns[Figure[CellRecord]]
"""A column for each cell: a row is a function of the cell."""


def _in_unit(value_of: FigureOf) -> Figure[CellRecord]:
    """A value in the cell's unit."""
    return lambda cell: figure(value_of(cell), cell.unit)


def _measured(columns: _CellColumns, cells: Sequence[CellRecord], footnotes: Footnotes, kind: str) -> Iterator[Row]:
    first, unit = cells[0], unit_name(cells[0].unit)
    samples = {cell.id: [figure(sample, cell.unit) for sample in cell.samples] for cell in cells}
    yield from _sample_rows(columns, f"{benchmark_title(first)}(sample", samples)
    centre = "average" if centre_of(first.clock, first.metric) is mean else "median"
    yield columns.row(
        f"{centre}({unit})",
        lambda cell: cell.status + footnotes.marks(cell) if cell.value is None else figure(cell.value, cell.unit),
    )
    if any(parameters.PLAIN.of(cell) is not None for cell in cells):
        yield columns.row("  without the probe, in turn", _in_unit(parameters.PLAIN.of))
    yield columns.row(f"overhead({unit})", _in_unit(overhead_of), "bold")
    for name in purpose_names(cells):
        yield columns.row(f"  {purpose_title(name)}", _in_unit(spent_on(name)))
    if any(cell.interval and cell.interval[0] != cell.interval[1] for cell in cells):
        yield columns.row(f"  95 % from({unit})", _end_of_interval(0))
        yield columns.row(f"  95 % to({unit})", _end_of_interval(1))
    base = next((cell for cell in cells if cell.probe == _COMPARED_WITH and cell.overhead is not None), None)
    if base is not None and len(cells) > 1:
        yield columns.row(f"{kind}ratio to {_COMPARED_WITH}", lambda cell: overhead_ratio(cell, base))
    if any(map(parameters.ATTACHED.of, cells)):
        attached = f"attached by {bpftrace_versions(cells)}"
        yield columns.row(attached, lambda cell: parameters.ATTACHED.of(cell) or NOTHING)
    if any(_traps(cell) != NOTHING for cell in cells):
        yield columns.row("int3 a hit", _traps)


def _end_of_interval(end: int) -> Figure[CellRecord]:
    """The lower (0) or upper (1) end; none of a baseline."""
    return _in_unit(lambda cell: cell.interval[end] if cell.interval and cell.probe != BASELINE else None)


def _traps(cell: CellRecord) -> str:
    count = traps_per_hit(cell)
    return (UNKNOWN if has_unknown_traps(cell) else NOTHING) if count is None else number(count)


def _modelled(columns: _CellColumns, group: CellGroup) -> Iterator[Row]:
    def part(index: int) -> Figure[CellRecord]:
        return lambda cell: time_figures(group.time(cell), marked=False)[index]

    def error(cell: CellRecord) -> str:
        time = group.time(cell)
        return NOTHING if time is None or time.error is None else f"{100 * time.error:+.1f} %"

    def fit(cell: CellRecord) -> str:
        time = group.time(cell)
        return NOTHING if time is None or time.role is None else "yes" if time.is_fit else "no"

    yield columns.row(f"{MODELLED}overhead(nsec)", part(0), "bold italic")
    yield columns.row("from(nsec)", part(1), "italic", depth=2)
    yield columns.row("to(nsec)", part(2), "italic", depth=2)
    times = [time for time in map(group.time, group.cells) if time is not None]
    if any(time.error is not None for time in times):
        yield columns.row("error to published", error, "italic", depth=2)
    if any(time.role is not None and time.is_fit for time in times):
        yield columns.row("a fit", fit, "italic", depth=2)
    by_probe = {cell.probe: group.time(cell) for cell in group.cells}
    base = by_probe.get(_COMPARED_WITH)
    if base is not None and len(group.cells) > 2:
        ratio = f"{MODELLED}ratio to {_COMPARED_WITH}"
        yield columns.row(ratio, lambda cell: modelled_ratio(group.time(cell), base), "italic")


def _sample_rows(columns: _CellColumns, label: str, samples: Mapping[str, Sequence[str]]) -> Iterator[Row]:
    """A row for each sample; ``samples`` has those of cells by id."""

    def sample(number: int) -> Figure[CellRecord]:
        return lambda cell: samples[cell.id][number] if number < len(samples[cell.id]) else NOTHING

    most = max(map(len, samples.values()))
    yield from (columns.row(f"{label}{number + 1})", sample(number)) for number in range(most))


def _published(columns: _CellColumns, cells: Sequence[CellRecord], table: str) -> Iterator[Row]:
    unit, documented = unit_name(published_unit(cells, table)), {cell.id: published(cell, table) for cell in cells}
    samples = {name: [published_figure(sample) for sample in column.samples] for name, column in documented.items()}
    yield from _sample_rows(columns, "published(sample", samples)
    yield columns.row(f"published average({unit})", lambda cell: published_figure(documented[cell.id].average))
    yield columns.row(
        f"published overhead({unit})", lambda cell: published_figure(documented[cell.id].overhead), "bold"
    )
    compared = next((cell for cell in cells if cell.probe == _COMPARED_WITH), None)
    if compared is not None and len(cells) > 1:
        base = documented[compared.id].overhead
        yield columns.row(
            f"published ratio to {_COMPARED_WITH}",
            lambda cell: NOTHING if cell.probe == BASELINE else ratio_figure(documented[cell.id].overhead, base),
        )
