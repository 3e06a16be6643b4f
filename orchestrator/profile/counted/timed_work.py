# SPDX-License-Identifier: GPL-2.0-only
"""Work that is timed as a whole, with its ticks and page faults, and the proof that the plugin counted all of it.

QEMU's plugin counts an instruction when it begins, so a faulting one is counted again after the fault; the clock
counts it once. While a CPU sleeps, the clock advances to the next timer, and nothing is executed. So for each region
between two marks

    clock <= instructions <= clock + faults    without a hlt
             instructions <= clock + faults    with one
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from orchestrator.errors import EvidenceError
from orchestrator.profile.counted.counts import Code, Region, together


class CountedWork(NamedTuple):
    """What pieces of work executed, separately and ``together``, and the figures that bound it.

    ``ticks`` is the clock's total, including the second reading of each piece, as the plugin counts it. ``faults`` is
    how often a fault's handler was entered, ``halts`` how often the CPU slept.
    """

    regions: Sequence[Region]
    together: Region
    ticks: int
    faults: int
    halts: int


def counted_work(regions: Sequence[Region], ticks: Sequence[int], fault_entries: Container[int]) -> CountedWork:
    """The work of regions, with the clock's ``ticks`` of each.

    ``fault_entries`` are the addresses of the handlers of exceptions that restart an instruction. Raises EvidenceError
    unless the plugin counted what the clock did, within the number of faults.
    """
    if len(regions) != len(ticks):
        raise EvidenceError(f"QEMU counted in {len(regions)} pieces of work, and {len(ticks)} were timed")
    faults = [_executed(region, lambda code: code.address in fault_entries) for region in regions]
    halts = [_executed(region, lambda code: code.code in ("f4", "0f01c9")) for region in regions]  # hlt, mwait
    for region, clock, faulted, halted in zip(regions, ticks, faults, halts, strict=True):
        # A region contains both readings of the clock, their difference one of them.
        counted = region.total - 1
        if counted > clock + faulted or (not halted and counted < clock):
            raise EvidenceError(
                f"QEMU counted {counted} instructions, and the clock {clock}, with {faulted} faults and {halted} halts "
                "between its readings"
            )
    return CountedWork(regions, together(regions), sum(ticks) + len(regions), sum(faults), sum(halts))


def _executed(region: Region, is_counted: Callable[[Code], bool]) -> int:
    return sum(counts.executed for code, counts in region.counts.items() if is_counted(code))
