# SPDX-License-Identifier: GPL-2.0-only
"""The published figures for a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.catalog.probes import probes
from orchestrator.catalog.reference import reference_tables
from orchestrator.results.contract import CellRecord


@dataclass(frozen=True)
class Published:
    """A column of a published table, in the table's unit. ``average`` is None where only the overhead was printed."""

    samples: Sequence[float] = ()
    average: float | None = None
    overhead: float | None = None


def published(cell: CellRecord, table_id: str) -> Published:
    """Return the figures of the table ``table_id`` for the cell: none, if it has no such column.

    They are the catalogue's, since a cell without a number has no reference in its record. For a table that this
    version does not know they are the record's.
    """
    table = reference_tables().get(table_id)
    if table is None:
        recorded = cell.reference if cell.reference and cell.reference.table == table_id else None
        return Published(average=recorded.value, overhead=recorded.overhead) if recorded else Published()
    kind = probes().get(cell.probe)
    column = kind.column if kind else None
    if column is None or column not in table.columns:
        return Published()
    return Published(table.samples.get(column, ()), table.average(column), table.overhead(column))


def published_unit(cells: Sequence[CellRecord], table_id: str) -> str:
    """Return the unit of the table ``table_id``, which one of the cells is compared with."""
    return next(cell.reference.unit for cell in cells if cell.reference and cell.reference.table == table_id)


def source(table_id: str) -> str:
    """Return the sentence that names the source of published figures."""
    table = reference_tables().get(table_id)
    if table is None:  # a run of another version of this program
        return f"Published: {table_id}."
    return f"Published: {table.title} ({table.id}); linux-{table.kernel}, {table.processor}."
