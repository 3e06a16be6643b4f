# SPDX-License-Identifier: GPL-2.0-only
"""How well modelled times agree with a published table: errors, order, ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from orchestrator.catalog.probes import published_column
from orchestrator.catalog.reference import ReferenceTable, reference_tables
from orchestrator.results.modelled import ModelledCell


@dataclass(frozen=True)
class Agreement:
    """Of the cells of one published table: relative errors of the predicted ones, and pairs of probes.

    Pairs are of cells that are not excluded. ``kept`` are in the published order; those that are not are ``disputed``
    where another table of the document has them in the other order, else ``lost``. ``ratios`` of a pair are ``in_band``
    where its published ratio is possible within both bands.
    """

    errors: Sequence[float]
    kept: int
    disputed: Sequence[str]
    lost: Sequence[str]
    in_band: int

    @property
    def pairs(self) -> int:
        """All pairs."""
        return self.kept + len(self.disputed) + len(self.lost)


def agreement(table: ReferenceTable, cells: Sequence[ModelledCell]) -> Agreement:
    """The agreement of ``cells``, which have times and published figures of ``table``."""
    kept = in_band = 0
    disputed: list[str] = []
    lost: list[str] = []
    for one, other in _pairs(cells):
        in_band += _ratio_in_band(one, other)
        if _difference(one.overhead, other.overhead) * _difference(one.published, other.published) >= 0:
            kept += 1
        else:
            name = f"{one.probe} and {other.probe}"
            (disputed if _is_disputed(table, *map(published_column, (one.probe, other.probe))) else lost).append(name)
    errors = [cell.error for cell in cells if cell.role == "predicted" and cell.error is not None]
    return Agreement(errors, kept, disputed, lost, in_band)


def _pairs(cells: Sequence[ModelledCell]) -> Iterator[tuple[ModelledCell, ModelledCell]]:
    return combinations([cell for cell in cells if cell.role != "excluded" and cell.error is not None], 2)


def _difference(one: float | None, other: float | None) -> float:
    assert one is not None
    assert other is not None
    return one - other


def _ratio_in_band(one: ModelledCell, other: ModelledCell) -> bool:
    assert one.interval is not None
    assert other.interval is not None
    assert one.published is not None
    assert other.published is not None
    # Products, since a band may reach zero.
    least = one.interval[0] * other.published <= one.published * other.interval[1]
    return least and one.published * other.interval[0] <= one.interval[1] * other.published


def _is_disputed(table: ReferenceTable, one: str | None, other: str | None) -> bool:
    """Whether tables of one document have two columns in different orders."""
    orders = {
        known.overhead(one) < known.overhead(other)
        for known in reference_tables().values()
        if known.document_id == table.document_id and one in known.columns and other in known.columns
        if one is not None and other is not None
    }
    return len(orders) > 1
