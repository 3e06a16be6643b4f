# SPDX-License-Identifier: GPL-2.0-only
"""The calibration cells of a cost table in stored runs, and the fit to them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.catalog.cost_table import Fitted
from orchestrator.errors import LabError, UsageError
from orchestrator.model.cost_file import CostFile
from orchestrator.model.fit import Target, fitted
from orchestrator.model.overheads import published_overheads
from orchestrator.model.price import published_nanoseconds
from orchestrator.results.runs import Run


def calibrated(file: CostFile, runs: Sequence[Run]) -> Fitted:
    """The costs that fit a table's calibration cells, which the ``runs`` have with profiles.

    Raises UsageError where a cell is missing, or is in them twice with different counts; LabError where nothing fits.
    """
    table = file.table
    if table.declared is None:
        raise LabError(f"{table.cpu} cannot be calibrated: {table.uncalibrated}", where=str(file.path))
    found: dict[tuple[str, str], Target] = {}
    for run in runs:
        for name, column, overhead in published_overheads(run, table.cpu, table.priced):
            counts = {one: float(number) for one, number in overhead.counts.items()}
            target = Target(name, column, counts, published_nanoseconds(name, column))
            if found.setdefault((name, column), target) != target:
                raise UsageError(f"the runs have {name} {column} twice, with different counts: name one of them")
    missing = [f"{name} {column}" for name, column in table.declared.cells if (name, column) not in found]
    if missing:
        hint = "measure them: orchestrator run CONFIG --profile symbols"
        raise UsageError(f"the runs have no profile of {len(missing)} calibration cells", detail=missing, hint=hint)
    return fitted(table, file.declaration, [found[cell] for cell in table.declared.cells])
