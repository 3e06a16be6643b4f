# SPDX-License-Identifier: GPL-2.0-only
"""Whether two cells can be compared, and what is to be said where they did not make the same calls."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.results.contract import CellRecord
from orchestrator.results.profile import CellProfile

_WORK = ("call", "arguments", "workload", "scope", "packets", "command", "image", "kernel_modules", "rounds")
"""Parameters that say what a cell does; an earlier version may have recorded fewer of them."""


def why_not_compared(before: CellRecord, after: CellRecord) -> str | None:
    """Why the difference of two numbers means nothing: another unit, or other work; None where it does."""
    facts = {
        "clocks": (before.clock, after.clock),
        "metrics": (before.metric, after.metric),
        "units": (before.unit, after.unit),
        "benchmarks": _benchmarks(before, after),
        **{name: (before.parameters.get(name), after.parameters.get(name)) for name in _WORK},
    }
    for what, (first, second) in facts.items():
        if first != second and first is not None and second is not None:
            return f"different {what}: {first} and {second}"
    one, other = before.work, after.work
    if one is not None and other is not None and (one.done, one.digest) != (other.done, other.digest):
        results = [f"{work.done} of digest {work.digest[:16] or 'none'}" for work in (one, other)]
        return f"different work: each run made {results[0]}, and {results[1]}"
    return None


def record_notes(before: CellRecord, after: CellRecord) -> Iterator[str]:
    """Sentences on what else differs between two cells, as they were recorded."""
    facts = {
        "calls": tuple(calls_of(one) for one in (before, after)),
        "entries into the kernel": tuple(str(one.parameters.get("entry", "")) for one in (before, after)),
        "results of the calls": tuple(str(one.parameters.get("outcome", "")) for one in (before, after)),
    }
    yield from _different(facts)


def notes(before: tuple[CellRecord, CellProfile], after: tuple[CellRecord, CellProfile]) -> Iterator[str]:
    """Sentences on what else differs between two cells than a probe, a handler, a kernel or a machine."""
    yield from _different({"architectures": (before[1].arch, after[1].arch)})
    yield from record_notes(before[0], after[0])


def calls_of(record: CellRecord) -> str:
    """What a cell's calls are: ``gettimeofday({"buffer": 16}, 0)``, or a user's file."""
    call, workload = record.parameters.get("call"), record.parameters.get("workload")
    if call is not None:
        arguments = str(record.parameters.get("arguments", "[]"))
        return f"{call}({arguments.removeprefix('[').removesuffix(']')})"
    return record.benchmark if workload is None else str(workload)


def _benchmarks(before: CellRecord, after: CellRecord) -> tuple[str, str]:
    """Two benchmarks that make one call are the same: ``gtodbench``, and ``syscall`` of gettimeofday."""
    if "call" in before.parameters and "call" in after.parameters:
        return "", ""
    return before.benchmark, after.benchmark


def _different(facts: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for what, (first, second) in facts.items():
        if first != second and first and second:
            yield f"different {what}: {first} and {second}"
