# SPDX-License-Identifier: GPL-2.0-only
"""When is a worker's count believed? When a cell that both have measured counts the same, to the instruction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.results.contract import PER_RUN, CellRecord

CHECK_EVERY = 10
"""Boots of a worker after which one of its cells is measured again on another."""

Counts = Mapping[str, tuple[str, tuple[float, ...]]]
"""By cell: its status and its samples."""


def counts(records: Iterable[CellRecord]) -> Counts:
    """What of some records has to be equal everywhere."""
    return {record.id: (record.status, tuple(record.samples)) for record in records}


def difference(here: Counts, there: Counts) -> str | None:
    """The first count that differs, as a part of a sentence; None where none does."""
    for id_, (status, samples) in here.items():
        other_status, other = there.get(id_, ("no outcome", ()))
        if (status, samples) != (other_status, other):
            return f"{id_} is {_shown(other_status, other)} there and {_shown(status, samples)} here"
    return None


def _shown(status: str, samples: Sequence[float]) -> str:
    return ", ".join(f"{one:.10g}" for one in samples[:4]) if samples else status


def checkable(records: Iterable[CellRecord]) -> list[CellRecord]:
    """The records by which a worker can be checked: exact ones, failures first, then as they were measured.

    The exact clock repeats a failure, too: a worker whose cells fail where another's do not is wrong.
    """
    exact = [
        one
        for one in records
        # Whole runs have timer ticks in them, which fall differently.
        if one.clock == "instructions" and one.metric != PER_RUN and one.status in ("ok", "failed")
    ]
    return sorted(exact, key=lambda one: one.status == "ok")
