# SPDX-License-Identifier: GPL-2.0-only
"""The modelled times of a stored run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from orchestrator.catalog.probes import published_column
from orchestrator.catalog.reference import reference_tables
from orchestrator.errors import ConfigError, EvidenceError, LabError, UsageError
from orchestrator.model.cost_file import CostFile, cost_file, cost_files, load_cost_file
from orchestrator.model.cost_sources import cost_sources
from orchestrator.model.overheads import Overhead, has_overhead, is_probed, overhead_of
from orchestrator.model.price import price, published_nanoseconds
from orchestrator.paths import user_path
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord
from orchestrator.results.modelled import Costs, ModelEvidence, ModelledCell, ModelledRun
from orchestrator.results.runs import Run


def known_costs() -> Mapping[str, CostFile]:
    """The catalogue's cost tables by CPU."""
    found = [cost_file(path.stem) for path in cost_files()]
    return {one.table.cpu: one for one in found}


def own_costs(paths: Sequence[str], run: Run) -> Mapping[str, CostFile]:
    """A user's cost tables by CPU.

    Raises ConfigError for a file that is none or gives no times, UsageError for two of one CPU and for one that the run
    has no use for.
    """
    cpus = list(dict.fromkeys(cell.cpu for cell in run.record.cells))
    found: dict[str, CostFile] = {}
    for file in (load_cost_file(user_path(path)) for path in paths):
        cpu = file.table.cpu
        other = found.setdefault(cpu, file)
        if other is not file:
            what = f"{other.path} and {file.path} both have the costs of {cpu}"
            raise UsageError(what, where="--costs", hint="name one of them")
        if cpu not in cpus:
            what = f"this has the costs of {cpu}, and the run has cells of {', '.join(cpus)} only"
            raise UsageError(what, where=str(file.path), hint="leave it out, or put its 'cpu' right")
        if file.unusable is not None:
            hint = f"fit it: {PROGRAM} model fit {shlex.quote(str(file.path))} RUN --out FILE"
            raise ConfigError(file.unusable, where=str(file.path), hint=hint if file.table.declared else "")
    return found


def modelled_run(run: Run, costs: Mapping[str, CostFile]) -> ModelledRun:
    """The time of each probed cell of a run by the cost table of its CPU.

    Raises UsageError where no cell has a profile to model a time from, LabError where all of them failed.
    """
    cells = [cell for cell in run.record.cells if is_probed(cell)]
    if cells and not any(has_overhead(cell) for cell in cells):
        hint = f"the reasons: {PROGRAM} report {run.record.run}"
        raise LabError(f"run {run.record.run} has no probe's overhead: its cells failed", hint=hint)
    if not any(cell.profile is not None for cell in cells):
        hint = f"measure with one: {PROGRAM} run CONFIG --profile symbols"
        raise UsageError(f"run {run.record.run} has no profile of a probe's overhead", hint=hint)
    modelled = [_modelled(cell, run, costs.get(cell.cpu)) for cell in cells]
    return ModelledRun(
        run=run.record.run,
        experiment=run.record.experiment,
        costs=used_costs(modelled, costs),
        cells=tuple(modelled),
    )


def used_costs(cells: Sequence[ModelledCell], costs: Mapping[str, CostFile]) -> tuple[Costs, ...]:
    """The costs that cells with times follow from, by CPU."""
    names = dict.fromkeys(cell.cpu for cell in cells if cell.reason is None)
    return tuple(cost_sources(costs[name]) for name in names)


def _modelled(cell: CellRecord, run: Run, costs: CostFile | None) -> ModelledCell:
    if not has_overhead(cell):
        return _without(cell, f"{cell.probe} failed: {cell.reason}" if cell.reason else f"{cell.probe} failed")
    if costs is None:
        return _without(cell, f"CPU {cell.cpu} has no cost table")
    if costs.unusable is not None:
        return _without(cell, costs.unusable)
    try:
        overhead = overhead_of(cell, run, costs.table.priced)
    except EvidenceError as error:
        return _without(cell, error.what)
    if overhead is None:
        return _without(cell, "the cell, or the one without a probe, has no profile")
    return modelled_cell(overhead, costs)


def modelled_cell(overhead: Overhead, costs: CostFile) -> ModelledCell:
    """The time of a cell by a cost table that is usable."""
    cell, baseline = overhead.cell, overhead.baseline
    assert cell.profile is not None
    assert baseline.profile is not None
    counts = {name: float(number) for name, number in overhead.counts.items()}
    time = price(costs.table, counts)
    declared = costs.table.declared
    assert declared is not None
    place = _place(cell)
    fitted_to = None if place is None else declared.kernel(*place)
    return ModelledCell(
        **_identity(cell),
        overhead=time.value,
        interval=(time.low, time.high),
        cycles=time.value * costs.table.mhz.value / 1000,
        role=None if place is None else declared.role(*place, cell.kernel),
        calibration_kernel=None if fitted_to == cell.kernel else fitted_to,
        exclusion=None if place is None else declared.reason(*place),
        reference=cell.reference,
        published=None if place is None else published_nanoseconds(*place),
        evidence=ModelEvidence(
            cost_table=costs.table.cpu,
            cost_table_sha256=costs.digest,
            profile_sha256=cell.profile.sha256,
            baseline=baseline.id,
            baseline_profile_sha256=baseline.profile.sha256,
            instructions=cell.overhead or 0.0,
            counts={str(name): number for name, number in counts.items()},
        ),
    )


def _without(cell: CellRecord, reason: str) -> ModelledCell:
    return ModelledCell(**_identity(cell), reason=reason)


def _identity(cell: CellRecord) -> dict[str, str | None]:
    names = ("id", "table", "cpu", "kernel", "probe", "handler", "benchmark")
    return {name: getattr(cell, name) for name in names}


def _place(cell: CellRecord) -> tuple[str, str] | None:
    """The published table and column that the cell is compared with; None also for a table of another version."""
    column = published_column(cell.probe)
    if cell.reference is None or column is None:
        return None
    table = reference_tables().get(cell.reference.table)
    return (table.id, column) if table is not None and column in table.columns else None
