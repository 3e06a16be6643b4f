# SPDX-License-Identifier: GPL-2.0-only
"""What a call executes, as a cost table counts it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

from orchestrator.catalog.cost_table import Input
from orchestrator.profile.classes import LOCKED, per_call
from orchestrator.results.contract import CellRecord
from orchestrator.results.profile import CellProfile

Counts = Mapping[Input, Fraction]
"""What a call executes, or what it executes more than another, by what has a cost."""

_CLASSES: Mapping[Input, str] = {
    "trap": "traps",
    "popf": "popf",
    "pushf": "pushf",
    "rdtsc": "rdtsc",
    "locked": LOCKED,
}


def inputs(profile: CellProfile, record: CellRecord, priced: Collection[Input]) -> Counts:
    """What a call of a cell executes; instructions without a cost in ``priced`` are plain ones."""
    classes = per_call(profile)
    found = {name: classes[known] for name, known in _CLASSES.items() if name in priced}
    special = sum(found.values(), Fraction(0))
    if "trap" in priced:
        special += classes["iret"]  # part of a trap's cost
    plain = Fraction(profile.executed, profile.calls) - special
    evidence = record.evidence
    if "recorded line" in priced and evidence is not None and evidence.recorded:
        # An event (struct ring_event of kmods/lib/ring.h) has 64 bytes, as a line of all these CPUs' caches has.
        found["recorded line"] = Fraction(evidence.recorded, evidence.calls)
    return {"instruction": plain, **found}


def difference(one: Counts, other: Counts) -> Counts:
    """What ``one`` executes more than ``other``; what is equal is left out."""
    names = dict.fromkeys([*one, *other])
    changes = {name: one.get(name, Fraction(0)) - other.get(name, Fraction(0)) for name in names}
    return {name: change for name, change in changes.items() if change}
