# SPDX-License-Identifier: GPL-2.0-only
"""The instructions that a probe adds to a call, by price: counts of a cell less those of its baseline."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

from orchestrator.catalog.price_list import (
    Input,
)
from orchestrator.catalog.probes import BASELINE, published_column
from orchestrator.catalog.published_tables import reference_tables
from orchestrator.errors import EvidenceError
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord, InstructionClass, RunRecord
from orchestrator.results.parameters import ARGUMENTS, AT, CALL, CHANNEL, IMAGE, KERNEL_MODULES, WORKLOAD

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


def difference(counts: Counts, without: Counts) -> Counts:
    """``counts`` minus ``without``, the counts without the probe; zeros left out."""
    names = dict.fromkeys([*counts, *without])
    changes = {name: counts.get(name, Fraction(0)) - without.get(name, Fraction(0)) for name in names}
    return {name: change for name, change in changes.items() if change}


COUNTING = (
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


def baseline_key(cell: CellRecord) -> tuple[object, ...]:
    """What a cell has in common with its baseline."""
    parameters = (cell.parameters.get(name) for name in _COMPARED)
    return (cell.table, cell.cpu, cell.smp, cell.kernel, cell.handler, cell.benchmark, cell.clock, *parameters)


Baselines = Mapping[tuple[object, ...], CellRecord]


def baselines_of(run: RunRecord) -> Baselines:
    """The first baseline of each group of cells that are compared with one."""
    return {baseline_key(cell): cell for cell in reversed(run.cells) if cell.probe == BASELINE}


def overhead_of(cell: CellRecord, baselines: Baselines, priced: Collection[Input]) -> Counts | None:
    """The counts that a cell's probe adds to a call; None if the cell or its baseline has no counts.

    Raises EvidenceError if the counts contradict the measured overhead.
    """
    baseline = baselines.get(baseline_key(cell))
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


PublishedPlace = tuple[str, str]
"""A published table, and its column."""


def published_place(cell: CellRecord) -> PublishedPlace | None:
    """The published table and column that the cell is compared with; None without one, or for an unknown table.

    None also for a table of a processor that the catalogue lacks: its figures are not the modelled CPU's.
    """
    column = published_column(cell.probe)
    table = None if cell.reference is None else reference_tables().get(cell.reference.table)
    if table is None or table.cpu is None or column is None or column not in table.columns:
        return None
    return table.id, column
