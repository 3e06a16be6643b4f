# SPDX-License-Identifier: GPL-2.0-only
"""Tables in the layout of the mail of 2009: one row per probe, and one published table beside the other.

Measured and published overheads are side by side, and so are their ratios to the optimised kprobe's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from orchestrator.benchmarks.calls.report.purpose_rows import purpose_sentences
from orchestrator.benchmarks.calls.report.wording import (
    comparison_meaning,
    conditions,
    heading,
    outcomes,
    probe_title,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.report.evidence import proof_lists
from orchestrator.report.figures import (
    NOTHING,
    UNDECIDED,
    figure,
    ratio_figure,
    unit_name,
)
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Group, Panel
from orchestrator.report.published import source
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import other_kernel
from orchestrator.results.contract import CellRecord

_COMPARED_WITH = "kprobe+optimized"


@dataclass(frozen=True)
class _Half:
    """A published table and the cells measured for it, by the mail's names."""

    panel: Panel
    table: ReferenceTable
    cells: dict[str, CellRecord]


def fits_mail(panel: Panel) -> bool:
    """Whether the panel is compared with a table of this layout, and has no probe twice."""
    probed = [cell.probe for cell in panel.cells if cell.probe != BASELINE]
    return panel.reference is not None and panel.reference.layout == "mail" and len(set(probed)) == len(probed)


def mail_sheet(group: Group) -> Sheet:
    """Return panels that fit the mail, each of another table of one document, as one table."""
    halves = [
        _Half(panel, panel.reference, {mail_label(cell): cell for cell in panel.cells if cell.probe != BASELINE})
        for panel in group
        if panel.reference is not None
    ]
    owner = {cell.id: half for half in halves for cell in half.panel.cells}
    cells = [cell for half in halves for cell in half.panel.cells]

    def name(cell: CellRecord) -> str:
        label = probe_title(cell) if cell.probe == BASELINE else mail_label(cell)
        return f"{owner[cell.id].table.name} {label}"

    footnotes = Footnotes(cells, name, lambda cell: other_kernel(owner[cell.id].panel, cell))
    first, returned = halves[0], outcomes(cells, name)
    processors = dict.fromkeys(cpu(half.panel.first.cpu).title for half in halves)
    return Sheet(
        title=first.table.figure,
        facts=[
            f"Overhead of probes on {', '.join(processors)}",
            *(_conditions(half, footnotes) for half in halves),
            *returned.failing,
        ],
        grid=_grid(halves, footnotes),
        sentences=[
            *(source(half.table.id) for half in halves),
            comparison_meaning(first.panel),
            *purpose_sentences(cells, name),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=[proofs for half in halves for proofs in proof_lists(half.panel.cells, name)],
    )


def mail_label(cell: CellRecord) -> str:
    """Return the name of the cell's row: the mail's, where it has one."""
    kind = probes().get(cell.probe)
    return kind.column if kind and kind.column else cell.probe


def _conditions(half: _Half, footnotes: Footnotes) -> str:
    baselines = [
        (cell.kernel if half.panel.elsewhere(cell) else heading(cell))
        + f"{footnotes.marks(cell)} "
        + (figure(cell.value, cell.unit) if cell.value is not None else cell.status)
        for cell in half.panel.cells
        if cell.probe == BASELINE
    ]
    return f"{conditions(half.panel)}; baseline {', '.join(baselines) or 'not measured'}"


def _grid(halves: Sequence[_Half], footnotes: Footnotes) -> Grid:
    published = list(dict.fromkeys(column for half in halves for column in half.table.columns))
    others = list(dict.fromkeys(label for half in halves for label in half.cells if label not in published))
    # The mail separates kprobes and kretprobes.
    blocks = [list(labels) for _, labels in groupby(published, lambda column: column.partition("+")[0])]
    if others:
        blocks.append(others)
    rows = [
        [Row(label, [text for half in halves for text in _figures(half, label, footnotes)]) for label in labels]
        for labels in blocks
    ]
    headings = [text for half in halves for text in _headings(half)]
    return Grid(headings, rows, together=len(headings) // len(halves))


def _headings(half: _Half) -> list[str]:
    name, unit = half.table.name, half.panel.first.unit
    bounds = ["95 % from", "95 % to"] if half.panel.first.clock == "wall" else []
    columns = [unit_name(unit), *bounds, f"published {unit_name(half.table.unit)}", "ratio", "published ratio"]
    return [f"{name} {column}" for column in columns]


def _figures(half: _Half, label: str, footnotes: Footnotes) -> list[str]:
    cell, base = half.cells.get(label), half.cells.get(_COMPARED_WITH)
    overhead = half.table.overhead(label) if label in half.table.columns else None
    bounds = [NOTHING, NOTHING] if half.panel.first.clock == "wall" else []
    if cell is None:
        measured = NOTHING
    elif cell.status != "ok":
        measured = cell.status + footnotes.marks(cell)
    else:
        measured = figure(cell.overhead, cell.unit) + footnotes.marks(cell)
        if bounds and cell.interval:
            bounds = [figure(end, cell.unit) for end in cell.interval]
    compared = half.table.overhead(_COMPARED_WITH) if _COMPARED_WITH in half.table.columns else None
    return [measured, *bounds, _published(overhead), _ratio(cell, base), ratio_figure(overhead, compared)]


def _published(overhead: float | None) -> str:
    """The mail prints every figure to two decimals."""
    return NOTHING if overhead is None else f"{overhead:.2f}"


def _ratio(cell: CellRecord | None, base: CellRecord | None) -> str:
    if cell is None or base is None or cell.overhead is None or base.overhead is None:
        return NOTHING
    return UNDECIDED if "none" in (cell.verdict, base.verdict) else ratio_figure(cell.overhead, base.overhead)
