# SPDX-License-Identifier: GPL-2.0-only
"""The time that a cost table gives for what was counted, with its band.

All is linear. A fitted cost is a weighted sum of what the constants leave of the calibration cells, so a time is a sum
of published figures and of constants, each times a number. The band has every constant anywhere within its range and
every calibration cell off by its uncertainty, all at once and in the worst combination: interval arithmetic, no
probabilities. It has nothing of what the model leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.catalog.cost_table import CalibrationCell, Constant, CostTable, Fitted, Input
from orchestrator.catalog.reference import reference_table

_RESOLUTION = {"ns": 0.5, "us": 5.0}
"""Half of the last digit of what the documents print, in nanoseconds: whole ns, and us to two decimals."""
_NANOSECONDS = {"ns": 1.0, "us": 1000.0}


@dataclass(frozen=True)
class Time:
    """Nanoseconds, and the band that they are in."""

    value: float
    low: float
    high: float


def price(table: CostTable, counts: Mapping[Input, float]) -> Time:
    """The time for ``counts``. The table is fitted, and has a cost for each of them."""
    assert table.fitted is not None
    by_cell = _by_cell(table.fitted, counts)
    value = sum(number * cycles_of(table, name) * 1000 / table.mhz.value for name, number in counts.items() if number)
    low = high = value
    for name, constant in table.constants.items():
        number = counts.get(name, 0.0) - sum(
            part * cell.counts.get(name, 0.0) for part, cell in zip(by_cell, table.fitted.cells, strict=True)
        )
        least, middle, most = nanoseconds(constant, table.mhz)
        ends = [number * (end - middle) for end in (least, most)]
        low += min(ends)
        high += max(ends)
    for part, uncertainty in zip(by_cell, uncertainties(table.fitted.cells), strict=True):
        low -= abs(part) * uncertainty
        high += abs(part) * uncertainty
    return Time(value, low, high)


def published_nanoseconds(table: str, column: str) -> float:
    """A published overhead in nanoseconds. Raises ConfigError for an unknown table or column."""
    published = reference_table(table)
    return published.overhead(column) * _NANOSECONDS[published.unit]


def cycles_of(table: CostTable, name: Input) -> float:
    """The cost of one."""
    if name in table.constants:
        return table.constants[name].value
    assert table.fitted is not None
    return table.fitted.costs[name].cycles


def nanoseconds(constant: Constant, mhz: Constant) -> tuple[float, float, float]:
    """A constant's least, assumed and greatest time, the frequency's range included."""
    return 1000 * constant.low / mhz.high, 1000 * constant.value / mhz.value, 1000 * constant.high / mhz.low


def uncertainties(cells: list[CalibrationCell]) -> list[float]:
    """Nanoseconds that each calibration cell may be off: the worst residual of all, or what the document rounds off."""
    worst = max(abs(cell.residual) for cell in cells)
    return [max(worst * abs(cell.published), _RESOLUTION[reference_table(cell.table).unit]) for cell in cells]


def _by_cell(fitted: Fitted, counts: Mapping[Input, float]) -> list[float]:
    """How much of each calibration cell's figure is in the time for ``counts``."""
    return [
        sum(counts.get(name, 0.0) * cost.weights[index] for name, cost in fitted.costs.items())
        for index in range(len(fitted.cells))
    ]
