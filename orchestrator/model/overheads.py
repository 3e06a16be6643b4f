# SPDX-License-Identifier: GPL-2.0-only
"""What a probed cell's calls execute more than those of its baseline."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.catalog.cost_table import Input
from orchestrator.catalog.probes import BASELINE, published_column
from orchestrator.errors import EvidenceError
from orchestrator.model.inputs import Counts, difference, inputs
from orchestrator.results.contract import CellRecord
from orchestrator.results.profile import load_profile
from orchestrator.results.runs import Run

_COMPARED = ("at", "call", "arguments", "workload", "image", "channel", "kernel_modules")
"""Parameters that a cell and its baseline have in common."""
_ROUNDING = 1e-6
"""Instructions a call: one in a million calls."""


@dataclass(frozen=True)
class Overhead:
    """A cell with its baseline, and what each of its calls executes more."""

    cell: CellRecord
    baseline: CellRecord
    counts: Counts


def is_probed(cell: CellRecord) -> bool:
    """Whether a cell has an exact overhead, or failed to have one."""
    return cell.probe != BASELINE and cell.clock == "instructions" and (has_overhead(cell) or cell.status == "failed")


def has_overhead(cell: CellRecord) -> bool:
    """Whether a cell was measured, and compared with one without a probe."""
    return cell.status == "ok" and cell.overhead is not None


def baseline_of(cell: CellRecord, run: Run) -> CellRecord | None:
    """The cell without a probe that a cell was compared with."""

    def key(one: CellRecord) -> tuple[object, ...]:
        others = (one.parameters.get(name) for name in _COMPARED)
        return (one.table, one.cpu, one.smp, one.kernel, one.handler, one.benchmark, one.clock, *others)

    return next((one for one in run.record.cells if one.probe == BASELINE and key(one) == key(cell)), None)


def overhead_of(cell: CellRecord, run: Run, priced: Collection[Input]) -> Overhead | None:
    """A probed cell's overhead in counts; None where the cell, or its baseline, has no profile.

    Raises EvidenceError where the profiles do not add up to the overhead that was measured.
    """
    baseline = baseline_of(cell, run)
    if baseline is None or cell.profile is None or baseline.profile is None:
        return None
    profiles = load_profile(run.directory, cell), load_profile(run.directory, baseline)
    found, without = (Fraction(one.executed, one.calls) for one in profiles)
    # The overhead is a difference of rounded means.
    if cell.overhead is None or abs(float(found - without) - cell.overhead) > _ROUNDING:
        raise EvidenceError(
            f"the profiles of {cell.id} and its baseline differ by {float(found - without):g} instructions, "
            f"and its overhead is {cell.overhead}",
            where=str(run.directory),
        )
    counts = difference(inputs(profiles[0], cell, priced), inputs(profiles[1], baseline, priced))
    return Overhead(cell, baseline, counts)


def published_overheads(run: Run, cpu: str, priced: Collection[Input]) -> Iterator[tuple[str, str, Overhead]]:
    """The profiled cells of a run on a CPU that have a published figure: its table, its column."""
    for cell in run.record.cells:
        column = published_column(cell.probe)
        if cell.cpu != cpu or not (is_probed(cell) and has_overhead(cell)) or cell.reference is None or column is None:
            continue
        overhead = overhead_of(cell, run, priced)
        if overhead is not None:
            yield cell.reference.table, column, overhead
