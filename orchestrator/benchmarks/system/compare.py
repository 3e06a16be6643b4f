# SPDX-License-Identifier: GPL-2.0-only
"""The overhead of a whole system's work over the baseline's, and the smallest difference that can be resolved."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.benchmarks.system.task import SystemCell
from orchestrator.errors import EvidenceError
from orchestrator.results.contract import UNITS, CellRecord
from orchestrator.results.resolution import Resolution
from orchestrator.run.record import changed


def compared(cell: SystemCell, record: CellRecord, others: Sequence[CellRecord]) -> CellRecord:
    """The record with its overhead and its verdict; ``others`` are the baseline and its A/A boots that have numbers.

    Raises EvidenceError where its work differs from the baseline's.
    """
    if not cell.compared_with:
        return record
    baseline = next((other for other in others if other.id == cell.compared_with[0]), None)
    if baseline is not None:
        check_same_work(baseline, record)
    resolution = Resolution.of(
        record.samples,
        () if baseline is None else baseline.samples,
        [other.samples for other in others if other is not baseline],
    )
    undecided = None if cell.task.aa_boot else resolution.why_undecided(UNITS[cell.clock])
    known = {"resolvable": resolution.smallest, "again_difference": resolution.aa_difference}
    return changed(
        record,
        parameters={**record.parameters, **{name: value for name, value in known.items() if value is not None}},
        notes=(*record.notes, *([undecided] if undecided else [])),
        overhead=resolution.overhead,
        interval=resolution.interval,
        verdict="none" if undecided else None,
    )


def check_same_work(baseline: CellRecord, record: CellRecord) -> None:
    """Raise EvidenceError where the work differs from the baseline's: their costs cannot be compared then."""
    proof, own = baseline.work, record.work
    assert proof is not None
    assert own is not None
    if (proof.done, proof.digest) != (own.done, own.digest):
        raise EvidenceError(
            f"each run made {own.done} things of digest {own.digest[:16] or 'none'}, the baseline's "
            f"{proof.done} of {proof.digest[:16] or 'none'}: they did not do the same work"
        )
