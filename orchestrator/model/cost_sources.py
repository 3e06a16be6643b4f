# SPDX-License-Identifier: GPL-2.0-only
"""The costs of a table, each with its range and its source."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.catalog.cost_table import Constant, CostTable
from orchestrator.model.cost_file import CostFile
from orchestrator.model.price import price
from orchestrator.results.modelled import Cost, Costs

MHZ = "MHz"


def cost_sources(file: CostFile) -> Costs:
    """The costs of a table that is usable, in cycles, and its frequency."""
    declared = file.table.declared
    assert declared is not None
    return Costs(
        cpu=file.table.cpu,
        sha256=file.digest,
        declared=declared.date,
        costs=(*_fitted(file.table), *_constants(file.table)),
        remarks=tuple(declared.remarks),
    )


def _fitted(table: CostTable) -> Iterator[Cost]:
    assert table.fitted is not None
    where = "; ".join(f"{one.table} {one.column}" for one in table.fitted.cells)
    for name, cost in table.fitted.costs.items():
        time = price(table, {name: 1.0})
        low, high = (end * table.mhz.value / 1000 for end in (time.low, time.high))
        yield Cost(name=name, value=cost.cycles, low=low, high=high, source="fitted", where=where)


def _constants(table: CostTable) -> Iterator[Cost]:
    constants: list[tuple[str, Constant]] = [*table.constants.items(), (MHZ, table.mhz)]
    for name, one in constants:
        yield Cost(name=name, value=one.value, low=one.low, high=one.high, source=one.source, where=one.where)
