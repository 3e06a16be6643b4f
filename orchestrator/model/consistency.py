# SPDX-License-Identifier: GPL-2.0-only
"""Whether the figures that were fitted follow from each other: a file can be edited by hand."""

from __future__ import annotations

from math import fsum

from orchestrator.catalog.cost_table import CostTable, Fitted
from orchestrator.model.price import cycles_of

_KEPT = 1e-6
"""Relative to the terms of a sum. Figures are kept with nine significant digits."""


def contradiction(table: CostTable, fitted: Fitted) -> str | None:
    """What does not follow: the name of a cost, or the table and column of a cell; None where all does.

    A cost is the sum of its weights times what the constants leave of the published figures, and a cell's modelled time
    the sum of its counts, each at its cost. A single edited figure breaks one of the two. No numpy is needed for it.
    """
    nanosecond = table.mhz.value / 1000
    rests = [
        cell.published
        - fsum(
            table.constants[name].value * one / nanosecond
            for name, one in cell.counts.items()
            if name in table.constants
        )
        for cell in fitted.cells
    ]
    for name, cost in fitted.costs.items():
        if not _is_sum(cost.cycles, [one * rest * nanosecond for one, rest in zip(cost.weights, rests, strict=True)]):
            return name
    for cell in fitted.cells:
        if not _is_sum(cell.modelled, [one * cycles_of(table, name) / nanosecond for name, one in cell.counts.items()]):
            return f"{cell.table} {cell.column}"
    return None


def _is_sum(value: float, terms: list[float]) -> bool:
    return abs(value - fsum(terms)) <= _KEPT * fsum(map(abs, terms))
