# SPDX-License-Identifier: GPL-2.0-only
"""Is what a hit of a kprobe passes besides its handler measured: the kernel's aggregator and a post-handler?"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.catalog.probes import probes
from orchestrator.results.contract import CellRecord

_LEFT_EARLY = (5, 6)
"""Instructions of the aggregator after a handler that returns 1, as a jprobe's: the kernel goes on with the next.
Six on lab-i386-smp-bpf@6.12."""
_SHARED_LIST = 4
"""Instructions for one more kprobe in a list of the hash table: a single step ends at an int3 in a copy of the
instruction, whose lookup passes the kprobe where both addresses are in one list. Copies take turns in their page: the
first kprobe of a boot may pay it, and the next not (lab-x86_64-smp-ibt-ftrace)."""


def check_extras(records: Mapping[str, CellRecord]) -> None:
    """The records of one kernel and handler by their probes: the sizes must explain what ``kprobe-plain`` lacks."""
    plain = _value(records["kprobe-plain"])
    for probe in "kprobe", "kprobe-fallback":
        sizes = extras_of(records[probe])
        unexplained = _value(records[probe]) - plain - sum(sizes.values())
        assert abs(unexplained) in (0, _SHARED_LIST), (probe, unexplained)
    aggregator = extras_of(records["kprobe"])["aggregator"]
    for probe, record in records.items():
        sizes = extras_of(record)
        assert bool(sizes) == (record.status == "ok" and probes()[probe].extras == "kept"), probe
        if sizes:
            possible = {left + shared for left in (0, *_LEFT_EARLY) for shared in (-_SHARED_LIST, 0, _SHARED_LIST)}
            assert aggregator - sizes["aggregator"] in possible, (probe, aggregator, sizes)
    assert extras_of(records["jprobe"])["aggregator"] < aggregator


def extras_of(record: CellRecord) -> dict[str, float]:
    """The instructions of a hit that are not its handler's, by what they are; each has a note."""
    sizes: dict[str, float] = {}
    for extra in "aggregator", "post_handler":
        size = record.parameters.get(f"{extra}_instructions")
        if size is not None:
            assert isinstance(size, float)
            assert size > 0
            assert any(note.startswith(f"{size:g} instructions of a hit are the ") for note in record.notes)
            sizes[extra] = size
    return sizes


def _value(record: CellRecord) -> float:
    assert record.status == "ok", record.reason
    assert record.value is not None
    return record.value
