# SPDX-License-Identifier: GPL-2.0-only
"""A table in the layout of the 2005 document's lists.

One column per probe with the unprobed kernel first, and a row for each sample, the average and the overhead. The
published figures are below the measured ones in the same rows and columns, in their own unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.benchmarks.calls.report.purpose_rows import purpose_meaning, purpose_rows
from orchestrator.benchmarks.calls.report.wording import (
    benchmark_title,
    comparison_meaning,
    conditions,
    heading,
    outcomes,
    probe_title,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.evidence import UNKNOWN, hides_traps, proof_lists, traps_per_hit, untold_traps
from orchestrator.report.figures import (
    NOTHING,
    UNDECIDED,
    figure,
    number,
    published_figure,
    ratio_figure,
    unit_name,
)
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Panel
from orchestrator.report.published import published, published_unit, source
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import other_kernel, unit_meaning
from orchestrator.results.contract import CellRecord, centre_of
from orchestrator.results.statistics import mean

_COMPARED_WITH = "djprobe"


def list_sheet(panel: Panel) -> Sheet:
    """Return the panel as one list."""
    overheads_of = f"Overhead of probes on {cpu(panel.first.cpu).title}"
    overview = [overheads_of, conditions(panel)]
    title, *facts = [panel.reference.title, *overview] if panel.reference else overview
    footnotes = Footnotes(panel.cells, probe_title, lambda cell: other_kernel(panel, cell))
    returned = outcomes(panel.cells, heading)
    blocks = [_measured(panel.cells, footnotes), *(_published(panel.cells, table) for table in panel.references)]
    headings = [heading(cell) + (footnotes.marks(cell) if cell.status == "ok" else "") for cell in panel.cells]
    return Sheet(
        title=title,
        facts=[*facts, *returned.failing],
        grid=Grid(headings, blocks),
        sentences=[
            *(source(table) for table in panel.references),
            comparison_meaning(panel) if panel.references else unit_meaning(panel),
            *purpose_meaning(panel.cells),
            *untold_traps(panel.cells, probe_title),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists(panel.cells, probe_title),
    )


def _measured(cells: Sequence[CellRecord], footnotes: Footnotes) -> list[Row]:
    first = cells[0]
    unit = unit_name(first.unit)
    rows = [
        Row(
            f"{benchmark_title(first)}(sample{index + 1})",
            [figure(cell.samples[index], cell.unit) if index < len(cell.samples) else NOTHING for cell in cells],
        )
        for index in range(max(len(cell.samples) for cell in cells))
    ]
    centres = [
        f"{cell.status}{footnotes.marks(cell)}" if cell.value is None else figure(cell.value, cell.unit)
        for cell in cells
    ]
    rows.append(Row(f"{'average' if centre_of(first.clock, first.metric) is mean else 'median'}({unit})", centres))
    overheads = [figure(cell.overhead, cell.unit) for cell in cells]
    rows.append(Row(f"overhead({unit})", overheads, style="bold"))
    rows += purpose_rows(cells)
    if any(cell.interval and cell.interval[0] != cell.interval[1] for cell in cells):
        rows += _bounds(cells, unit)
    rows += _measured_ratios(cells)
    traps = [_traps(cell) for cell in cells]
    if any(text != NOTHING for text in traps):
        rows.append(Row("int3 a hit", traps))
    return rows


def _traps(cell: CellRecord) -> str:
    count = traps_per_hit(cell)
    if count is not None:
        return number(count)
    return UNKNOWN if hides_traps(cell) else NOTHING


def _bounds(cells: Sequence[CellRecord], unit: str) -> Iterator[Row]:
    """The ends of the overheads' 95 % intervals."""
    for end, label in enumerate(("from", "to")):
        ends = [cell.interval[end] if cell.interval and cell.probe != BASELINE else None for cell in cells]
        yield Row(f"  95 % {label}({unit})", [figure(value, cells[0].unit) for value in ends])


def _measured_ratios(cells: Sequence[CellRecord]) -> Iterator[Row]:
    base = next((cell for cell in cells if cell.probe == _COMPARED_WITH and cell.overhead is not None), None)
    if base is None or len(cells) == 1:
        return
    ratios = [
        UNDECIDED
        if cell.overhead is not None and "none" in (cell.verdict, base.verdict) and cell.probe != BASELINE
        else ratio_figure(None if cell.probe == BASELINE else cell.overhead, base.overhead)
        for cell in cells
    ]
    yield Row(f"ratio to {_COMPARED_WITH}", ratios)


def _published(cells: Sequence[CellRecord], table: str) -> list[Row]:
    unit = unit_name(published_unit(cells, table))
    columns = [published(cell, table) for cell in cells]
    rows = [
        Row(
            f"published(sample{index + 1})",
            [published_figure(one.samples[index]) if index < len(one.samples) else NOTHING for one in columns],
        )
        for index in range(max(len(one.samples) for one in columns))
    ]
    rows.append(Row(f"published average({unit})", [published_figure(one.average) for one in columns]))
    overheads = [published_figure(one.overhead) for one in columns]
    rows.append(Row(f"published overhead({unit})", overheads, style="bold"))
    compared = [one.overhead for cell, one in zip(cells, columns, strict=True) if cell.probe == _COMPARED_WITH]
    if compared and len(cells) > 1:
        ratios = [
            ratio_figure(None if cell.probe == BASELINE else one.overhead, compared[0])
            for cell, one in zip(cells, columns, strict=True)
        ]
        rows.append(Row(f"published ratio to {_COMPARED_WITH}", ratios))
    return rows
