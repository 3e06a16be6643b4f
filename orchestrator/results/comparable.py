# SPDX-License-Identifier: GPL-2.0-only
"""What is to be said where two cells are compared that did not make the same calls."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.results.contract import CellRecord
from orchestrator.results.profile import CellProfile


def notes(before: tuple[CellRecord, CellProfile], after: tuple[CellRecord, CellProfile]) -> Iterator[str]:
    """Sentences on what else differs between two cells than a probe, a handler, a kernel or a machine."""
    cells, arches = (before[0], after[0]), (before[1].arch, after[1].arch)
    facts = {
        "architectures": arches,
        "calls": tuple(calls_of(one) for one in cells),
        "entries into the kernel": tuple(str(one.parameters.get("entry", "")) for one in cells),
        "results of the calls": tuple(str(one.parameters.get("outcome", "")) for one in cells),
    }
    for what, (first, second) in facts.items():
        if first != second and first and second:
            yield f"different {what}: {first} and {second}"


def calls_of(record: CellRecord) -> str:
    """What a cell's calls are: ``gettimeofday({"buffer": 16}, 0)``, or a user's file."""
    call, workload = record.parameters.get("call"), record.parameters.get("workload")
    if call is not None:
        arguments = str(record.parameters.get("arguments", "[]"))
        return f"{call}({arguments.removeprefix('[').removesuffix(']')})"
    return record.benchmark if workload is None else str(workload)
