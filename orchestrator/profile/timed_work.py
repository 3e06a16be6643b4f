# SPDX-License-Identifier: GPL-2.0-only
"""Work that is timed as a whole, with its ticks and page faults, and the proof that the plugin counted all of it.

QEMU's plugin counts an instruction when it begins. One that faults begins again once the fault is mended; the clock
counts it once. While a CPU sleeps, the clock goes on to the next timer, and nothing is executed. So of each region
between two marks

    clock <= instructions <= clock + faults    without a hlt
             instructions <= clock + faults    with one
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from orchestrator.errors import EvidenceError
from orchestrator.profile.counts import Code, Region, together

_HALTS = frozenset({"f4", "0f01c9"})
"""hlt and mwait, as bytes."""


@dataclass(frozen=True)
class CountedWork:
    """What pieces of work executed, one by one and ``together``, and the figures that bound it.

    ``ticks`` is what the clock says of all, the second reading of each piece included, as the plugin counts it.
    ``faults`` is how often a fault's handler was entered, ``halts`` how often the CPU slept.
    """

    regions: Sequence[Region]
    together: Region
    ticks: int
    faults: int
    halts: int


def counted_work(regions: Sequence[Region], ticks: Sequence[int], fault_entries: Container[int]) -> CountedWork:
    """The work of regions that took so many ticks each, as the clock says.

    ``fault_entries`` are the addresses of the handlers of exceptions after which an instruction begins again. Raises
    EvidenceError unless the plugin counted what the clock did, within their number.
    """
    if len(regions) != len(ticks):
        raise EvidenceError(f"QEMU counted in {len(regions)} pieces of work, and {len(ticks)} were timed")
    faults = [_executed(region, lambda code: code.address in fault_entries) for region in regions]
    halts = [_executed(region, lambda code: code.code in _HALTS) for region in regions]
    for region, clock, faulted, halted in zip(regions, ticks, faults, halts, strict=True):
        # A region has both readings in it, and their difference one of them.
        counted = region.total - 1
        if counted > clock + faulted or (not halted and counted < clock):
            raise EvidenceError(
                f"QEMU counted {counted} instructions, and the clock {clock}, with {faulted} faults and {halted} halts "
                "between its readings"
            )
    return CountedWork(regions, together(regions), sum(ticks) + len(regions), sum(faults), sum(halts))


def _executed(region: Region, wanted: Callable[[Code], bool]) -> int:
    return sum(counts.executed for code, counts in region.counts.items() if wanted(code))
