# SPDX-License-Identifier: GPL-2.0-only
"""Costs that fit published figures best: least squares of the relative errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.catalog.cost_table import CalibrationCell, CostTable, Fitted, FittedCost, Input
from orchestrator.errors import HostError, LabError
from orchestrator.model.price import nanoseconds

_DIGITS = 9
"""Significant digits that are kept: linear algebra differs between processors in the last of sixteen."""
_DECIMALS = 12
_INDEPENDENT = 1e-3
"""The least singular value of columns of length 1 that are no multiples of each other."""


@dataclass(frozen=True)
class Target:
    """A published overhead in nanoseconds, and what the cell's calls execute more than those without a probe."""

    table: str
    column: str
    counts: Mapping[Input, float]
    published: float


def fitted(table: CostTable, declaration: str, targets: Sequence[Target]) -> Fitted:
    """The costs that ``table`` declares to fit. ``declaration`` is its digest.

    Raises LabError where the cells do not determine the costs, or give one that is not positive, and HostError without
    numpy.
    """
    try:
        import numpy as np
    except ImportError:
        hint = "pip install 'probe-lab[model]'"
        raise HostError("cost tables are fitted with numpy, which is not installed", hint=hint) from None

    assert table.declared is not None
    negative = next((one for one in targets if one.published <= 0), None)
    if negative is not None:
        where = f"{negative.table} {negative.column}"
        raise LabError(f"no cost fits {where}, which was published as {negative.published:g} ns")
    names = table.declared.fit
    times = {name: nanoseconds(constant, table.mhz)[1] for name, constant in table.constants.items()}
    fixed = [sum(times[name] * number for name, number in one.counts.items() if name in times) for one in targets]
    published = np.array([one.published for one in targets])
    # Divided by what was published: an error of a tenth counts the same in a long call as in a short one.
    relative = np.array([[one.counts.get(name, 0.0) / one.published for name in names] for one in targets])
    # Divided by their lengths: a call has a thousand instructions and three traps.
    lengths = np.linalg.norm(relative, axis=0)
    if not lengths.all() or np.linalg.matrix_rank(relative / lengths, tol=_INDEPENDENT) < len(names):
        raise LabError(f"{len(targets)} calibration cells do not determine the costs of {', '.join(names)}")
    weights = np.linalg.pinv(relative) / published
    costs: dict[Input, FittedCost] = {}
    for name, row in zip(names, weights, strict=True):
        cycles = _kept(float(row @ (published - np.array(fixed))) * table.mhz.value / 1000)
        if cycles <= 0:
            raise LabError(
                f"{table.cpu} cannot be calibrated: the published cells give {name} {cycles:g} cycles",
                hint="state in 'uncalibrated' why, or fit fewer costs",
            )
        costs[name] = FittedCost(cycles=cycles, weights=[_kept(float(one)) for one in row])
    cells = [
        CalibrationCell(
            table=one.table,
            column=one.column,
            counts={name: float(number) for name, number in one.counts.items()},
            published=_kept(one.published),
            modelled=_kept(
                rest + sum(costs[name].cycles * 1000 / table.mhz.value * one.counts.get(name, 0.0) for name in names)
            ),
        )
        for one, rest in zip(targets, fixed, strict=True)
    ]
    return Fitted(declaration=declaration, cells=cells, costs=costs)


def _kept(value: float) -> float:
    return float(f"{round(value, _DECIMALS):.{_DIGITS}g}")
