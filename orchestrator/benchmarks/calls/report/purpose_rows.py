# SPDX-License-Identifier: GPL-2.0-only
"""What each probe's overhead is spent on, as rows of a table or as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from orchestrator.catalog.purposes import in_order, purpose_title
from orchestrator.report.figures import NOTHING, figure
from orchestrator.report.grid import Row
from orchestrator.results.contract import CellRecord

_ADD_UP = "The purposes add up to the overhead, to the instruction; other is what the catalogue assigns to none."


def purpose_rows(cells: Sequence[CellRecord]) -> Iterator[Row]:
    """A row for each purpose that a cell has; none where no cell has purposes."""
    for name in purpose_names(cells):
        figures = [figure(cell.purposes.get(name, 0.0), cell.unit) if cell.purposes else NOTHING for cell in cells]
        yield Row(f"  {purpose_title(name)}", figures)


def purpose_meaning(cells: Sequence[CellRecord]) -> Iterator[str]:
    """The sentence on the rows, where there are any."""
    if purpose_names(cells):
        yield _ADD_UP


def purpose_sentences(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Iterator[str]:
    """The same as rows in a sentence for each cell, for tables whose rows are something else."""
    for cell in cells:
        if cell.purposes:
            parts = [
                f"{purpose_title(one)} {figure(cell.purposes[one], cell.unit)}" for one in in_order([*cell.purposes])
            ]
            yield f"{name(cell)}: {', '.join(parts)}."
    yield from purpose_meaning(cells)


def purpose_names(cells: Sequence[CellRecord]) -> Sequence[str]:
    """The purposes that a cell has, in the order in which they are printed."""
    return in_order([name for cell in cells for name in cell.purposes])
