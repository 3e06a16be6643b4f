# SPDX-License-Identifier: GPL-2.0-only
"""The costs of a table, each with its range and its source."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.catalog.cost_table import Constant, CostTable
from orchestrator.catalog.cpu_caches import cpu_caches
from orchestrator.model.cost_file import CostFile
from orchestrator.model.price import price
from orchestrator.results.modelled import Cost, Costs

MHZ = "MHz"


def cost_sources(file: CostFile) -> Costs:
    """The costs of a table in cycles, its frequency and its caches. One that gives no times has no fitted costs."""
    table, declared = file.table, file.table.declared
    fitted = _fitted(table) if file.unusable is None else ()
    return Costs(
        cpu=table.cpu,
        sha256=file.digest,
        declared=None if declared is None else declared.date,
        reason=file.unusable,
        costs=(*fitted, *_constants(table)),
        remarks=() if declared is None else tuple(declared.remarks),
        caches=None if table.caches is None else cpu_caches()[table.caches],
    )


def _fitted(table: CostTable) -> Iterator[Cost]:
    assert table.fitted is not None
    assert table.declared is not None
    calibration, kernels = table.declared.calibration, table.declared.kernels
    where = "; ".join(f"{name} {', '.join(of)}, counts of {kernels[name]}" for name, of in calibration.items())
    for name, cost in table.fitted.costs.items():
        time = price(table, {name: 1.0})
        low, high = (end * table.mhz.value / 1000 for end in (time.low, time.high))
        yield Cost(name=name, value=cost.cycles, low=low, high=high, source="fitted", where=where)


def _constants(table: CostTable) -> Iterator[Cost]:
    constants: list[tuple[str, Constant]] = [*table.constants.items(), (MHZ, table.mhz)]
    for name, one in constants:
        yield Cost(name=name, value=one.value, low=one.low, high=one.high, source=one.source, where=one.where)
