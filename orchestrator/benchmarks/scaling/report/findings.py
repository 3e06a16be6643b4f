# SPDX-License-Identifier: GPL-2.0-only
"""What tables of many probes show: on which kernel the most of them cost most, and how one's cost grows."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.benchmarks.scaling.report.scaling_cells import ScalingCells, row_of, size_of
from orchestrator.benchmarks.scaling.rows import scaling_row
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.figures import figure, unit_name
from orchestrator.report.findings import Finding, Rank
from orchestrator.report.panel import Group
from orchestrator.results.contract import CellRecord

_MOST_TELLING = ("hit", "enable", "calls")
"""The rows that say most, the most telling first; of a table without them the first row is taken."""


def scaling_findings(group: Group) -> Iterator[Finding]:
    """The dearest and the cheapest kernel or way at the largest number of probes, and the growth of the dearest."""
    table = ScalingCells.of(group)
    measured = [cell for cell in table.cells if cell.value is not None and cell.probe != BASELINE]
    size = max((size_of(cell) for cell in measured), default=0)
    rows = list(dict.fromkeys(row_of(cell) for cell in measured if size_of(cell) == size))
    row = next((one for one in _MOST_TELLING if one in rows), None)
    cells = [cell for cell in measured if size_of(cell) == size and (row is None or row_of(cell) == row)]
    if not cells:
        return
    dearest, cheapest = max(cells, key=_each), min(cells, key=_each)
    what = "Largest overhead" if row is None else _title(dearest)
    # Cells of one row are of several kernels, otherwise one kernel has several rows.
    first, last = (_title(cell) if row is None else f"on {cell.kernel}" for cell in (dearest, cheapest))
    most = f"{first}, {_figure(dearest)}"
    each = most if cheapest is dearest else f"most {most}; least {last}, {_figure(cheapest)}"
    place = group[0].place(None)
    sentence = f"{what}{f', {place}' if place else ''}, {size} probes: {each}."
    base = (dearest.value or 0.0) - (dearest.overhead or 0.0)
    yield Finding(Rank.LARGEST, sentence, _each(dearest) / base if dearest.overhead and base > 0 else 0.0)
    found = table.growth_of_each(dearest.kernel, row_of(dearest))
    if found is not None:
        power = f"grows like the number of probes to the power of {found.exponent:.3f}"
        yield Finding(Rank.OTHER, f"{_title(dearest)}: its cost {power} on {dearest.kernel}.")


def _each(cell: CellRecord) -> float:
    """What one costs: beyond the call where that is known."""
    return (cell.value or 0.0) if cell.overhead is None else cell.overhead


def _figure(cell: CellRecord) -> str:
    unit = unit_name(cell.unit)
    exact = cell.overhead is not None and "step" not in cell.parameters
    return f"{figure(_each(cell), cell.unit) if exact else f'{_each(cell):.1f}'} {unit}"


def _title(cell: CellRecord) -> str:
    row = scaling_row(cell.probe)
    return (row.title if row else cell.probe).capitalize()
