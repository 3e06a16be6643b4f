# SPDX-License-Identifier: GPL-2.0-only
"""The modelled times of a stored run."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Literal

from pydantic import TypeAdapter

from orchestrator.catalog.data import read
from orchestrator.catalog.price_list import (
    INPUTS,
    Input,
    priced_cpus,
)
from orchestrator.catalog.probes import probes
from orchestrator.catalog.published_tables import reference_tables
from orchestrator.errors import ConfigError, EvidenceError, LabError, UsageError
from orchestrator.model.modelled_time import modelled_time
from orchestrator.model.price_file import PriceFile, load_price_file, price_sources
from orchestrator.model.priced_counts import (
    COUNTING,
    Baselines,
    Counts,
    baseline_key,
    baselines_of,
    has_overhead,
    is_probed,
    overhead_of,
    published_place,
)
from orchestrator.paths import user_path
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.modelled import CpuPrices, ModelEvidence, ModelledCell, ModelledRun
from orchestrator.results.runs import Run


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


@cache
def catalogue_prices() -> Mapping[str, PriceFile]:
    """The catalogue's price lists by CPU."""
    return {file.prices.cpu: file for file in map(load_price_file, priced_cpus().values())}


def user_prices(paths: Sequence[str], run: Run) -> Mapping[str, PriceFile]:
    """Users' price lists by CPU.

    Raises ConfigError for an invalid or unusable file, UsageError for two of one CPU and for a CPU that the run lacks.
    """
    cpus = list(dict.fromkeys(cell.cpu for cell in run.record.cells))
    files: dict[str, PriceFile] = {}
    for file in (load_price_file(user_path(path)) for path in paths):
        cpu = file.prices.cpu
        other_file = files.setdefault(cpu, file)
        if other_file is not file:
            what = f"{other_file.path} and {file.path} both have the prices of {cpu}"
            raise UsageError(what, where="--prices", hint="name one of them")
        if cpu not in cpus:
            what = f"this has the prices of {cpu}, but the run has only cells of {', '.join(cpus)}"
            raise UsageError(what, where=str(file.path), hint="leave it out, or correct its 'cpu'")
        if file.unusable is not None:
            hint = f"fit it: {PROGRAM} model fit {shlex.quote(str(file.path))} RUN --out FILE"
            raise ConfigError(file.unusable, where=str(file.path), hint=hint if file.prices.declared else "")
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
        raise UsageError(f"run {run.run} has no counts for the time of a probe", hint=COUNTING)
    baselines = baselines_of(run)
    modelled = [_modelled(cell, baselines, prices.get(cell.cpu)) for cell in cells]
    return ModelledRun(
        run=run.run,
        experiment=run.experiment,
        costs=used_prices(modelled, prices),
        cells=tuple(modelled),
    )


def modelled_times(run: RunRecord) -> Mapping[str, ModelledCell]:
    """A run's modelled cells by id, by the catalogue's price lists, if any has a time: what its main tables show."""
    baselines = baselines_of(run)
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


def _modelled(cell: CellRecord, baselines: Baselines, prices: PriceFile | None) -> ModelledCell:
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
            limit = why_no_time(cell, overhead, prices.prices.priced)
            overhead = None if limit is not None else overhead_of(cell, baselines, prices.prices.priced)
            reason = limit or reason
        if overhead is not None:
            return modelled_cell(cell, baselines[baseline_key(cell)].id, overhead, prices)
    return ModelledCell(**_identity(cell), reason=reason)


def modelled_cell(cell: CellRecord, baseline: str, overhead: Counts, prices: PriceFile) -> ModelledCell:
    """The time of a cell's ``overhead`` over its ``baseline``, by a usable price list."""
    declared = prices.prices.declared
    assert declared is not None
    counts = {name: float(number) for name, number in overhead.items()}
    time = modelled_time(prices.prices, counts)
    place = published_place(cell)
    fitted_to = None if place is None else declared.kernel(*place)
    return ModelledCell(
        **_identity(cell),
        overhead=time.value,
        interval=(time.low, time.high),
        cycles=time.value * prices.prices.mhz.value / 1000,
        role=None if place is None else declared.role(*place, cell.kernel),
        calibration_kernel=None if fitted_to == cell.kernel else fitted_to,
        exclusion=None if place is None else declared.reason(*place),
        reference=cell.reference,
        published=None if place is None else reference_tables()[place[0]].nanoseconds(place[1]),
        evidence=ModelEvidence(
            cost_table=prices.prices.cpu,
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
