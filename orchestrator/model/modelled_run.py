# SPDX-License-Identifier: GPL-2.0-only
"""The modelled times of a stored run, and the fit of a price list."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

from pydantic import TypeAdapter

from orchestrator.catalog.data import read
from orchestrator.catalog.price_list import (
    INPUTS,
    CalibrationCell,
    Declaration,
    Fitted,
    FittedPrice,
    Input,
    PriceList,
    priced_cpus,
)
from orchestrator.catalog.probes import BASELINE, probes, published_column
from orchestrator.catalog.reference import reference_tables
from orchestrator.errors import ConfigError, EvidenceError, HostError, LabError, UsageError
from orchestrator.model.price_file import PriceFile, load_price_file, modelled_time, nanoseconds, price_sources
from orchestrator.paths import user_path
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord, InstructionClass, RunRecord
from orchestrator.results.modelled import CpuPrices, ModelEvidence, ModelledCell, ModelledRun
from orchestrator.results.parameters import ARGUMENTS, AT, CALL, CHANNEL, IMAGE, KERNEL_MODULES, WORKLOAD
from orchestrator.results.runs import Run

Counts = Mapping[Input, Fraction]
"""Instructions of a call, or the difference of two calls, by price."""

_CLASSES: Mapping[Input, Sequence[InstructionClass]] = {
    "trap": ("int3", "other traps", "iret"),
    "system call": ("system calls", "sysret"),
    "popf": ("popf",),
    "pushf": ("pushf",),
    "rdtsc": ("rdtsc",),
    "locked": ("locked",),
}
"""The classes of instructions that a price is of. It includes the returns, which are not counted."""
_RETURNS = ("iret", "sysret")


def inputs(record: CellRecord, priced: Collection[Input]) -> Counts | None:
    """The counts of a cell's call, or None; instructions without a price of their own in ``priced`` are plain ones."""
    executed = record.executed
    if executed is None or record.value is None:
        return None
    classes = {name: Fraction(number, executed.calls) for name, number in executed.classes.items()}
    priced_classes = {name: known for name, known in _CLASSES.items() if name in priced}
    # The value minus the counts of classes; where events are recorded, the counted sum may differ from the value.
    plain = Fraction(record.value).limit_denominator(_MOST_CALLS)
    plain -= sum(classes[name] for known in priced_classes.values() for name in known)
    counts = {
        name: sum((classes[class_] for class_ in known if class_ not in _RETURNS), Fraction(0))
        for name, known in priced_classes.items()
    }
    if "single step" in priced:
        # It ends in an exception, which is no instruction, but whose iret is one. Others are of traps and system calls.
        traps = classes["int3"] + classes["other traps"]
        counts["single step"] = classes["iret"] - traps - (classes["system calls"] - classes["sysret"])
    if "mispredicted return" in priced:
        counts["mispredicted return"] = abs(classes["returns"] - classes["calls"])
    evidence = record.evidence
    if "recorded line" in priced and evidence is not None and evidence.recorded:
        # An event (struct ring_event of kmods/lib/ring.h) has 64 bytes, the size of a cache line of these CPUs.
        counts["recorded line"] = Fraction(evidence.recorded, evidence.calls)
    return {"instruction": plain, **counts}


@cache
def _limits() -> dict[Literal["at_return"], dict[str, str]]:
    """Why a CPU's price list is not fit to speak of some probes: by their property, and by CPU."""
    return TypeAdapter(dict[Literal["at_return"], dict[str, str]]).validate_python(read("model_limits.yaml"))


def why_no_time(cell: CellRecord, counts: Counts, priced: Collection[Input]) -> str | None:
    """Why a price list is not fit to speak of a cell whose probe adds ``counts``, of all prices; None if it is."""
    kind = probes().get(cell.probe)
    if kind is not None and kind.at_return and cell.cpu in _limits()["at_return"]:
        return _limits()["at_return"][cell.cpu]
    if cell.handler == "stack" and counts.get("single step"):
        return "a page fault while the stack is read cannot be told from a single step, whose price is another"
    names: list[Input] = ["trap", "single step", "system call"]
    if not counts.get("trap"):  # beside which a return is little
        names.append("mispredicted return")
    unpriced = next((name for name in names if name not in priced and counts.get(name)), None)
    return (
        None if unpriced is None else f"a hit takes a {unpriced}, and no published figure of this CPU gives its price"
    )


def difference(counts: Counts, without: Counts) -> Counts:
    """``counts`` minus ``without``, the counts without the probe; zeros left out."""
    names = dict.fromkeys([*counts, *without])
    changes = {name: counts.get(name, Fraction(0)) - without.get(name, Fraction(0)) for name in names}
    return {name: change for name, change in changes.items() if change}


_COUNTING = (
    f"measure again: {PROGRAM} run CONFIG; on a CPU without a price list with --profile symbols. Cells that failed, of "
    "earlier versions, or whose calls differ from each other have no counts"
)

_COMPARED = (AT, CALL, ARGUMENTS, WORKLOAD, IMAGE, CHANNEL, KERNEL_MODULES)
"""Parameters that a cell shares with its baseline."""
_MOST_CALLS = 10**9
"""The greatest denominator of a mean."""
_ROUNDING = 1e-6
"""Tolerance in instructions per call: one in a million calls."""


def is_probed(cell: CellRecord) -> bool:
    """Whether a cell should have an exact overhead."""
    return cell.probe != BASELINE and cell.clock == "instructions" and (has_overhead(cell) or cell.status == "failed")


def has_overhead(cell: CellRecord) -> bool:
    """Whether a cell was measured and compared with a baseline."""
    return cell.status == "ok" and cell.overhead is not None


def _compared(cell: CellRecord) -> tuple[object, ...]:
    parameters = (cell.parameters.get(name) for name in _COMPARED)
    return (cell.table, cell.cpu, cell.smp, cell.kernel, cell.handler, cell.benchmark, cell.clock, *parameters)


_Baselines = Mapping[tuple[object, ...], CellRecord]


def _baselines(run: RunRecord) -> _Baselines:
    # Of several the first.
    return {_compared(cell): cell for cell in reversed(run.cells) if cell.probe == BASELINE}


def overhead_of(cell: CellRecord, baselines: _Baselines, priced: Collection[Input]) -> Counts | None:
    """The counts that a cell's probe adds to a call; None if the cell or its baseline has no counts.

    Raises EvidenceError if the counts contradict the measured overhead.
    """
    baseline = baselines.get(_compared(cell))
    counted, without = (None if record is None else inputs(record, priced) for record in (cell, baseline))
    if baseline is None or counted is None or without is None:
        return None
    difference_of_values = (cell.value or 0.0) - (baseline.value or 0.0)
    # The overhead is a difference of rounded means.
    if cell.overhead is None or abs(difference_of_values - cell.overhead) > _ROUNDING:
        raise EvidenceError(
            f"{cell.id} and its baseline differ by {difference_of_values:g} instructions, "
            f"but its overhead is {cell.overhead}"
        )
    return difference(counted, without)


@cache
def catalogue_prices() -> Mapping[str, PriceFile]:
    """The catalogue's price lists by CPU."""
    return {file.table.cpu: file for file in map(load_price_file, priced_cpus().values())}


def user_prices(paths: Sequence[str], run: Run) -> Mapping[str, PriceFile]:
    """Users' price lists by CPU.

    Raises ConfigError for an invalid or unusable file, UsageError for two of one CPU and for a CPU that the run lacks.
    """
    cpus = list(dict.fromkeys(cell.cpu for cell in run.record.cells))
    files: dict[str, PriceFile] = {}
    for file in (load_price_file(user_path(path)) for path in paths):
        cpu = file.table.cpu
        other_file = files.setdefault(cpu, file)
        if other_file is not file:
            what = f"{other_file.path} and {file.path} both have the prices of {cpu}"
            raise UsageError(what, where="--prices", hint="name one of them")
        if cpu not in cpus:
            what = f"this has the prices of {cpu}, but the run has only cells of {', '.join(cpus)}"
            raise UsageError(what, where=str(file.path), hint="leave it out, or correct its 'cpu'")
        if file.unusable is not None:
            hint = f"fit it: {PROGRAM} model fit {shlex.quote(str(file.path))} RUN --out FILE"
            raise ConfigError(file.unusable, where=str(file.path), hint=hint if file.table.declared else "")
    return files


def modelled_run(run: RunRecord, prices: Mapping[str, PriceFile]) -> ModelledRun:
    """The time of each probed cell of a run by the price list of its CPU.

    Raises UsageError if no cell has counts, LabError if all failed.
    """
    cells = [cell for cell in run.cells if is_probed(cell)]
    if cells and not any(has_overhead(cell) for cell in cells):
        hint = f"see the reasons: {PROGRAM} report {run.run}"
        raise LabError(f"run {run.run} has no overhead of a probe: its cells failed", hint=hint)
    if not any(cell.executed is not None for cell in cells):
        raise UsageError(f"run {run.run} has no counts for the time of a probe", hint=_COUNTING)
    baselines = _baselines(run)
    modelled = [_modelled(cell, baselines, prices.get(cell.cpu)) for cell in cells]
    return ModelledRun(
        run=run.run,
        experiment=run.experiment,
        costs=used_prices(modelled, prices),
        cells=tuple(modelled),
    )


def modelled_times(run: RunRecord) -> Mapping[str, ModelledCell]:
    """A run's modelled cells by id, by the catalogue's price lists, if any has a time: what its main tables show."""
    baselines = _baselines(run)
    cells = {
        cell.id: _modelled(cell, baselines, prices)
        for cell in run.cells
        if cell.executed is not None and is_probed(cell) and (prices := catalogue_prices().get(cell.cpu)) is not None
    }
    return cells if any(cell.overhead is not None for cell in cells.values()) else {}


def used_prices(cells: Sequence[ModelledCell], prices: Mapping[str, PriceFile]) -> tuple[CpuPrices, ...]:
    """The prices of the CPUs of cells with times."""
    names = dict.fromkeys(cell.cpu for cell in cells if cell.reason is None)
    return tuple(price_sources(prices[name]) for name in names)


def _modelled(cell: CellRecord, baselines: _Baselines, prices: PriceFile | None) -> ModelledCell:
    overhead = None
    if not has_overhead(cell):
        reason = f"{cell.probe} failed: {cell.reason}" if cell.reason else f"{cell.probe} failed"
    elif prices is None:
        reason = f"CPU {cell.cpu} has no price list"
    elif prices.unusable is not None:
        reason = prices.unusable
    else:
        reason = "the cell or its baseline has no counts"
        try:
            overhead = overhead_of(cell, baselines, INPUTS)
        except EvidenceError as error:
            reason = error.what
        if overhead is not None:
            limit = why_no_time(cell, overhead, prices.table.priced)
            overhead = None if limit is not None else overhead_of(cell, baselines, prices.table.priced)
            reason = limit or reason
        if overhead is not None:
            return modelled_cell(cell, baselines[_compared(cell)].id, overhead, prices)
    return ModelledCell(**_identity(cell), reason=reason)


def modelled_cell(cell: CellRecord, baseline: str, overhead: Counts, prices: PriceFile) -> ModelledCell:
    """The time of a cell's ``overhead`` over its ``baseline``, by a usable price list."""
    declared = prices.table.declared
    assert declared is not None
    counts = {name: float(number) for name, number in overhead.items()}
    time = modelled_time(prices.table, counts)
    place = _place(cell)
    fitted_to = None if place is None else declared.kernel(*place)
    return ModelledCell(
        **_identity(cell),
        overhead=time.value,
        interval=(time.low, time.high),
        cycles=time.value * prices.table.mhz.value / 1000,
        role=None if place is None else declared.role(*place, cell.kernel),
        calibration_kernel=None if fitted_to == cell.kernel else fitted_to,
        exclusion=None if place is None else declared.reason(*place),
        reference=cell.reference,
        published=None if place is None else reference_tables()[place[0]].nanoseconds(place[1]),
        evidence=ModelEvidence(
            cost_table=prices.table.cpu,
            cost_table_sha256=prices.digest,
            baseline=baseline,
            instructions=cell.overhead or 0.0,
            counts={str(name): number for name, number in counts.items()},
            ranges=dict(time.ranges),
        ),
    )


def _identity(cell: CellRecord) -> dict[str, str | None]:
    names = ("id", "table", "cpu", "kernel", "probe", "handler", "benchmark")
    return {name: getattr(cell, name) for name in names}


_Place = tuple[str, str]
"""A published table, and its column."""


def _place(cell: CellRecord) -> _Place | None:
    """The published table and column that the cell is compared with; None without one, or for an unknown table.

    None also for a table of a processor that the catalogue lacks: its figures are not the modelled CPU's.
    """
    column = published_column(cell.probe)
    table = None if cell.reference is None else reference_tables().get(cell.reference.table)
    if table is None or table.cpu is None or column is None or column not in table.columns:
        return None
    return table.id, column


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
    table = file.table
    if table.declared is None:
        raise LabError(f"{table.cpu} cannot be calibrated: {table.uncalibrated}", where=str(file.path))
    targets: dict[_Place, FitTarget] = {}
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
            hint=_COUNTING,
        )
    return fitted(table, file.declaration, [targets[place] for place in table.declared.cells])


def _counted(run: RunRecord, file: PriceFile, declared: Declaration) -> Mapping[_Place, FitTarget]:
    """A run's counts for calibration cells. Raises UsageError for a cell measured on other kernels only."""
    cpu = file.table.cpu
    targets: dict[_Place, FitTarget] = {}
    elsewhere: dict[_Place, tuple[str, str]] = {}
    baselines = _baselines(run)
    for cell in run.cells:
        place = _place(cell) if cell.cpu == cpu and is_probed(cell) and has_overhead(cell) else None
        kernel = None if place is None else declared.kernel(*place)
        overhead = None if kernel is None else overhead_of(cell, baselines, file.table.priced)
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
