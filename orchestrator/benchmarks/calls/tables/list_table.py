# SPDX-License-Identifier: GPL-2.0-only
"""The list of one kernel: a column for each probe, as in the documents of 2005."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest

from orchestrator.benchmarks.calls.tables.layout import (
    COUNTED,
    MODELLED,
    Layout,
    benchmark_title,
    bpftrace_versions,
    comparison_meaning,
    conditions,
    heading,
    modelled_ratio,
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
from orchestrator.report.kind import (
    Panel,
    other_kernel,
    published,
    published_unit,
    source,
    time_figures,
    times_meaning,
    unit_meaning,
)
from orchestrator.report.sheet import (
    NOTHING,
    UNKNOWN,
    Footnotes,
    Grid,
    Row,
    Sheet,
    figure,
    has_unknown_traps,
    number,
    published_figure,
    ratio_figure,
    traps_per_hit,
    unit_name,
    unknown_traps,
)
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord, centre_of
from orchestrator.results.statistics import mean

_COMPARED_WITH = "djprobe"


def list_sheet(panel: Panel) -> Sheet:
    """A column for each probe, as in the lists of 2005: samples, their average, the overhead, what was published."""
    cells = panel.cells
    overview = [f"Overhead of probes on {cpu(panel.first.cpu).title}", conditions(panel)]
    title, *facts = [panel.reference.title, *overview] if panel.reference else overview
    layout = Layout([cells], probe_title, partial(other_kernel, panel))
    marks = layout.footnotes.marks
    blocks = [
        list(_measured(cells, layout.footnotes, COUNTED if panel.times else "")),
        *([list(_modelled(panel))] if any(map(panel.time, cells)) else []),
        *(list(_published(cells, table)) for table in panel.references),
    ]
    return layout.sheet(
        title,
        facts,
        Grid([heading(cell) + (marks(cell) if cell.status == "ok" else "") for cell in cells], blocks),
        [
            *(source(table) for table in panel.references),
            comparison_meaning(panel) if panel.references else unit_meaning(panel),
            *times_meaning([panel], probe_title),
            *varying_sentences(cells),
            *purpose_meaning(cells),
            *unknown_traps(cells, probe_title),
        ],
        heading,
    )


def _measured(cells: Sequence[CellRecord], footnotes: Footnotes, kind: str) -> Iterator[Row]:
    first, unit = cells[0], unit_name(cells[0].unit)
    samples = [[figure(sample, cell.unit) for sample in cell.samples] for cell in cells]
    yield from _sample_rows(f"{benchmark_title(first)}(sample", samples)
    centre = "average" if centre_of(first.clock, first.metric) is mean else "median"
    values = [
        cell.status + footnotes.marks(cell) if cell.value is None else figure(cell.value, cell.unit) for cell in cells
    ]
    yield Row(f"{centre}({unit})", values)
    if any(parameters.PLAIN.of(cell) is not None for cell in cells):
        yield Row("  without the probe, in turn", [figure(parameters.PLAIN.of(cell), cell.unit) for cell in cells])
    yield Row(f"overhead({unit})", [figure(cell.overhead, cell.unit) for cell in cells], style="bold")
    for name in purpose_names(cells):
        yield Row(f"  {purpose_title(name)}", [figure(spent_on(name)(cell), cell.unit) for cell in cells])
    if any(cell.interval and cell.interval[0] != cell.interval[1] for cell in cells):
        for end, label in enumerate(("from", "to")):
            ends = [cell.interval[end] if cell.interval and cell.probe != BASELINE else None for cell in cells]
            yield Row(f"  95 % {label}({unit})", [figure(value, first.unit) for value in ends])
    base = next((cell for cell in cells if cell.probe == _COMPARED_WITH and cell.overhead is not None), None)
    if base is not None and len(cells) > 1:
        yield Row(f"{kind}ratio to {_COMPARED_WITH}", [overhead_ratio(cell, base) for cell in cells])
    attached = [parameters.ATTACHED.of(cell) or NOTHING for cell in cells]
    if any(text != NOTHING for text in attached):
        yield Row(f"attached by {bpftrace_versions(cells)}", attached)
    traps = []
    for cell in cells:
        count, lacking = traps_per_hit(cell), UNKNOWN if has_unknown_traps(cell) else NOTHING
        traps.append(lacking if count is None else number(count))
    if any(text != NOTHING for text in traps):
        yield Row("int3 a hit", traps)


def _modelled(panel: Panel) -> Iterator[Row]:
    times = [panel.time(cell) for cell in panel.cells]
    overheads, *band = zip(*(time_figures(cell, marked=False) for cell in times), strict=True)
    yield Row(f"{MODELLED}overhead(nsec)", overheads, style="bold italic")
    yield from (Row(f"{end}(nsec)", texts, "italic", depth=2) for end, texts in zip(("from", "to"), band, strict=True))
    errors = [None if cell is None else cell.error for cell in times]
    if any(error is not None for error in errors):
        texts = [NOTHING if error is None else f"{100 * error:+.1f} %" for error in errors]
        yield Row("error to published", texts, "italic", depth=2)
    roles = [None if cell is None or cell.role is None else cell.is_fit for cell in times]
    if any(roles):
        yield Row("a fit", [NOTHING if role is None else "yes" if role else "no" for role in roles], "italic", depth=2)
    by_probe = {cell.probe: modelled_cell for cell, modelled_cell in zip(panel.cells, times, strict=True)}
    if by_probe.get(_COMPARED_WITH) is not None and len(times) > 2:
        ratios = [modelled_ratio(cell, by_probe[_COMPARED_WITH]) for cell in times]
        yield Row(f"{MODELLED}ratio to {_COMPARED_WITH}", ratios, "italic")


def _sample_rows(label: str, samples: Sequence[Sequence[str]]) -> Iterator[Row]:
    for index, texts in enumerate(zip_longest(*samples, fillvalue=NOTHING), start=1):
        yield Row(f"{label}{index})", texts)


def _published(cells: Sequence[CellRecord], table: str) -> Iterator[Row]:
    unit = unit_name(published_unit(cells, table))
    columns = [published(cell, table) for cell in cells]
    yield from _sample_rows(
        "published(sample", [[published_figure(sample) for sample in all_.samples] for all_ in columns]
    )
    yield Row(f"published average({unit})", [published_figure(column.average) for column in columns])
    overheads = [
        None if cell.probe == BASELINE else column.overhead for cell, column in zip(cells, columns, strict=True)
    ]
    yield Row(f"published overhead({unit})", [published_figure(column.overhead) for column in columns], style="bold")
    compared = [overhead for cell, overhead in zip(cells, overheads, strict=True) if cell.probe == _COMPARED_WITH]
    if compared and len(cells) > 1:
        yield Row(
            f"published ratio to {_COMPARED_WITH}", [ratio_figure(overhead, compared[0]) for overhead in overheads]
        )
