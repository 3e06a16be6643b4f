# SPDX-License-Identifier: GPL-2.0-only
"""The calibration cells of a cost table in stored runs, and the fit to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.catalog.cost_table import Declaration, Fitted
from orchestrator.errors import LabError, UsageError
from orchestrator.model.cost_file import CostFile
from orchestrator.model.fit import Target, fitted
from orchestrator.model.overheads import published_overheads
from orchestrator.model.price import published_nanoseconds
from orchestrator.program import PROGRAM
from orchestrator.results.runs import Run

_Place = tuple[str, str]
"""A published table, and its column."""


def calibrated(file: CostFile, runs: Sequence[Run]) -> Fitted:
    """The costs that fit a table's calibration cells, which the ``runs`` have with profiles on the declared kernels.

    Raises UsageError where a cell is missing, a run has it of another kernel only, or the runs have it twice with
    different counts; LabError where nothing fits.
    """
    table = file.table
    if table.declared is None:
        raise LabError(f"{table.cpu} cannot be calibrated: {table.uncalibrated}", where=str(file.path))
    places = list(table.declared.cells)
    found: dict[_Place, Target] = {}
    for run in runs:
        for place, target in _counted(run, file, table.declared).items():
            if found.setdefault(place, target) != target:
                what = f"the runs have {' '.join(place)} twice, with different counts"
                raise UsageError(what, where=run.record.run, hint="name one of them")
    missing = [
        f"{name} {column} on {table.declared.kernels[name]}" for name, column in places if (name, column) not in found
    ]
    if missing:
        hint = f"measure them: {PROGRAM} run CONFIG --profile symbols; a cell that failed has no profile"
        what = f"the runs have no profile of {len(missing)} calibration cells of {table.cpu}"
        raise UsageError(what, detail=missing, hint=hint)
    return fitted(table, file.declaration, [found[place] for place in places])


def _counted(run: Run, file: CostFile, declared: Declaration) -> Mapping[_Place, Target]:
    """What a run has counted for calibration cells. Raises UsageError where it has one of other kernels only."""
    found: dict[_Place, Target] = {}
    others: dict[_Place, str] = {}
    for name, column, overhead in published_overheads(run, file.table.cpu, file.table.priced):
        wanted = declared.kernel(name, column)
        if wanted is None:
            continue
        if overhead.cell.kernel != wanted:
            others.setdefault((name, column), overhead.cell.kernel)
            continue
        counts = {one: float(number) for one, number in overhead.counts.items()}
        target = Target(name, column, counts, published_nanoseconds(name, column))
        if found.setdefault((name, column), target) != target:
            what = f"the run has {name} {column} on kernel {wanted} twice, with different counts"
            raise UsageError(what, where=run.record.run, hint="fit to another run")
    for (name, column), kernel in others.items():
        if (name, column) not in found:
            raise _another_kernel(f"{name} {column}", kernel, declared.kernels[name], run, file)
    return found


def _another_kernel(cell: str, kernel: str, wanted: str, run: Run, file: CostFile) -> UsageError:
    """Each kernel executes another number of instructions for the same probe: its counts give other costs."""
    cpu = file.table.cpu
    return UsageError(
        f"run {run.record.run} counted {cell} on kernel {kernel}, and the cost table of {cpu} declares {wanted}",
        where=str(file.path),
        hint=f"measure with that kernel: {PROGRAM} run CONFIG --set kernels=[{wanted}] --profile symbols; or put "
        f"{kernel} into 'kernels' of a table of your own: {PROGRAM} model show {cpu} --format yaml >my.yaml",
    )
