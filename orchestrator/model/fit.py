# SPDX-License-Identifier: GPL-2.0-only
"""The fit of a CPU's prices to published figures, by least squares of relative errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.catalog.price_list import (
    CalibrationCell,
    Declaration,
    Fitted,
    FittedPrice,
    Input,
    PriceList,
)
from orchestrator.catalog.published_tables import reference_tables
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.model.modelled_time import nanoseconds
from orchestrator.model.price_file import PriceFile
from orchestrator.model.priced_counts import (
    COUNTING,
    PublishedPlace,
    baselines_of,
    has_overhead,
    is_probed,
    overhead_of,
    published_place,
)
from orchestrator.program import PROGRAM
from orchestrator.results.contract import RunRecord
from orchestrator.results.runs import Run

_DIGITS = 9
"""Significant digits kept: linear algebra differs between processors in the last of sixteen."""

_DECIMALS = 12

_INDEPENDENT = 1e-3
"""The smallest singular value of normalised columns that count as linearly independent."""


@dataclass(frozen=True)
class FitTarget:
    """A published overhead in nanoseconds, and the counts that the probe adds to a call."""

    table: str
    column: str
    counts: Mapping[Input, float]
    published: float


def fitted(table: PriceList, declaration: str, targets: Sequence[FitTarget]) -> Fitted:
    """Fit the prices that ``table`` declares; ``declaration`` is its digest.

    Raises LabError if the cells do not determine the prices or give one that is not positive, HostError without numpy.
    """
    try:
        import numpy as np
    except ImportError:
        hint = "pip install 'probe-lab[model]'"
        raise HostError("fitting price lists needs numpy, which is not installed", hint=hint) from None

    assert table.declared is not None
    negative = next((target for target in targets if target.published <= 0), None)
    if negative is not None:
        where = f"{negative.table} {negative.column}"
        raise LabError(f"no price fits {where}, published as {negative.published:g} ns")
    names = table.declared.fit
    times = {name: nanoseconds(constant, table.mhz)[1] for name, constant in table.constants.items()}
    fixed = [sum(times[name] * number for name, number in target.counts.items() if name in times) for target in targets]
    published = np.array([target.published for target in targets])
    # Relative to the published figures, so that an error of a tenth counts the same in a long and a short call.
    relative = np.array([[target.counts.get(name, 0.0) / target.published for name in names] for target in targets])
    # Normalised, because a call has a thousand instructions and three traps.
    lengths = np.linalg.norm(relative, axis=0)
    if not lengths.all() or np.linalg.matrix_rank(relative / lengths, tol=_INDEPENDENT) < len(names):
        raise LabError(f"{len(targets)} calibration cells do not determine the prices of {', '.join(names)}")
    weights = np.linalg.pinv(relative) / published
    prices: dict[Input, FittedPrice] = {}
    for name, row in zip(names, weights, strict=True):
        cycles = _kept(float(row @ (published - np.array(fixed))) * table.mhz.value / 1000)
        if cycles <= 0:
            raise LabError(
                f"{table.cpu} cannot be calibrated: the published cells give {name} {cycles:g} cycles",
                hint="give the reason in 'uncalibrated', or fit fewer prices",
            )
        prices[name] = FittedPrice(cycles=cycles, weights=[_kept(float(weight)) for weight in row])
    cells = [
        CalibrationCell(
            table=target.table,
            column=target.column,
            counts={name: float(number) for name, number in target.counts.items()},
            published=_kept(target.published),
            modelled=_kept(
                rest
                + sum(prices[name].cycles * 1000 / table.mhz.value * target.counts.get(name, 0.0) for name in names)
            ),
        )
        for target, rest in zip(targets, fixed, strict=True)
    ]
    return Fitted(declaration=declaration, cells=cells, costs=prices)


def _kept(value: float) -> float:
    return float(f"{round(value, _DECIMALS):.{_DIGITS}g}")


def calibrated(file: PriceFile, runs: Sequence[Run]) -> Fitted:
    """Fit a table's prices to its calibration cells, with the counts of ``runs`` on the declared kernels.

    Raises UsageError for a cell that is missing, measured on another kernel only, or measured twice with different
    counts; LabError if nothing fits.
    """
    table = file.prices
    if table.declared is None:
        raise LabError(f"{table.cpu} cannot be calibrated: {table.uncalibrated}", where=str(file.path))
    targets: dict[PublishedPlace, FitTarget] = {}
    for run in runs:
        for place, target in _counted(run.record, file, table.declared).items():
            if targets.setdefault(place, target) != target:
                what = f"the runs have {' '.join(place)} twice, with different counts"
                raise UsageError(what, where=run.record.run, hint="name one of them")
    missing = [place for place in table.declared.cells if place not in targets]
    if missing:
        raise UsageError(
            f"the runs have no counts of {len(missing)} calibration cells of {table.cpu}",
            detail=[f"{name} {column} on {table.declared.kernels[name]}" for name, column in missing],
            hint=COUNTING,
        )
    return fitted(table, file.declaration, [targets[place] for place in table.declared.cells])


def _counted(run: RunRecord, file: PriceFile, declared: Declaration) -> Mapping[PublishedPlace, FitTarget]:
    """A run's counts for calibration cells. Raises UsageError for a cell measured on other kernels only."""
    cpu = file.prices.cpu
    targets: dict[PublishedPlace, FitTarget] = {}
    elsewhere: dict[PublishedPlace, tuple[str, str]] = {}
    baselines = baselines_of(run)
    for cell in run.cells:
        place = published_place(cell) if cell.cpu == cpu and is_probed(cell) and has_overhead(cell) else None
        kernel = None if place is None else declared.kernel(*place)
        overhead = None if kernel is None else overhead_of(cell, baselines, file.prices.priced)
        if place is None or kernel is None or overhead is None:
            continue
        if cell.kernel != kernel:
            elsewhere.setdefault(place, (cell.kernel, kernel))
            continue
        counts = {name: float(number) for name, number in overhead.items()}
        target = FitTarget(*place, counts, _kept(reference_tables()[place[0]].nanoseconds(place[1])))
        if targets.setdefault(place, target) != target:
            what = f"the run has {' '.join(place)} on kernel {kernel} twice, with different counts"
            raise UsageError(what, where=run.run, hint="fit to another run")
    for place, (kernel, declared_kernel) in elsewhere.items():
        # Another kernel's counts would give other prices.
        if place not in targets:
            raise UsageError(
                f"run {run.run} counted {' '.join(place)} on kernel {kernel}, but the price list of {cpu} "
                f"declares {declared_kernel}",
                where=str(file.path),
                hint=f"measure with that kernel: {PROGRAM} run CONFIG --set kernels=[{declared_kernel}]; "
                f"or declare {kernel} in 'kernels' of your own table: {PROGRAM} model show {cpu} --format yaml "
                ">my.yaml",
            )
    return targets
