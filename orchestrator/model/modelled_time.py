# SPDX-License-Identifier: GPL-2.0-only
"""The time for counts by a price list, and its band.

Both are linear. A fitted price is a weighted sum of the calibration cells' figures less the constant prices, so a
time is a linear combination of published figures and constants. The band is interval arithmetic without
probabilities: every constant anywhere in its range, and every calibration cell off by its uncertainty, in the worst
combination. It does not cover what the model leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.catalog.price_list import Constant, Input, PriceList
from orchestrator.catalog.published_tables import reference_table

_RESOLUTION = {"ns": 0.5, "us": 5.0}
"""Half of the last printed digit of the documents' figures (whole ns, and us to two decimals), in nanoseconds."""


@dataclass(frozen=True)
class Time:
    """Nanoseconds, and how much more they are at both ends of the range of each constant and each calibration cell.

    Within a range the time is linear, and all times of a price list vary together.
    """

    value: float
    ranges: Mapping[str, tuple[float, float]]

    @property
    def low(self) -> float:
        return self.value + sum(map(min, self.ranges.values()))

    @property
    def high(self) -> float:
        return self.value + sum(map(max, self.ranges.values()))


def modelled_time(prices: PriceList, counts: Mapping[Input, float]) -> Time:
    """The time for ``counts``, by a fitted price list with a price for each of them."""
    assert prices.fitted is not None
    value = sum(number * cycles_of(prices, name) * 1000 / prices.mhz.value for name, number in counts.items() if number)
    # The weight of each calibration cell's figure in the time.
    by_cell = [
        sum(counts.get(name, 0.0) * price.weights[index] for name, price in prices.fitted.costs.items())
        for index in range(len(prices.fitted.cells))
    ]
    ranges = {}
    for name, constant in prices.constants.items():
        number = counts.get(name, 0.0) - sum(
            part * cell.counts.get(name, 0.0) for part, cell in zip(by_cell, prices.fitted.cells, strict=True)
        )
        least, middle, most = nanoseconds(constant, prices.mhz)
        ranges[str(name)] = (number * (least - middle), number * (most - middle))
    worst = max(abs(cell.residual) for cell in prices.fitted.cells)
    for part, cell in zip(by_cell, prices.fitted.cells, strict=True):
        # The worst residual of all, or the document's rounding.
        uncertainty = part * max(worst * abs(cell.published), _RESOLUTION[reference_table(cell.table).unit])
        ranges[f"{cell.table} {cell.column}"] = (-uncertainty, uncertainty)
    return Time(value, ranges)


def cycles_of(prices: PriceList, name: Input) -> float:
    """A price in cycles."""
    if name in prices.constants:
        return prices.constants[name].value
    assert prices.fitted is not None
    return prices.fitted.costs[name].cycles


def nanoseconds(constant: Constant, mhz: Constant) -> tuple[float, float, float]:
    """A constant's least, assumed and greatest time, with the frequency's range."""
    return 1000 * constant.low / mhz.high, 1000 * constant.value / mhz.value, 1000 * constant.high / mhz.low
