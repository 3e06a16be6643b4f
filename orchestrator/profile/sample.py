# SPDX-License-Identifier: GPL-2.0-only
"""The instructions of one sample, and the proof that the plugin counted what the clock did.

The plugin keeps two empty batches and then every batch that counts, in their order. A region is one instruction longer
than the clock says: it has both readings in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import EvidenceError
from orchestrator.profile.counts import Region, together

EMPTY_BATCHES = 2
"""Empty batches that ``bench.c`` keeps before its samples."""


@dataclass(frozen=True)
class Timed:
    """What the clock said: of an empty batch, and of each sample with its number of batches. In instructions."""

    empty: int
    samples: Sequence[tuple[int, int]]


def sample_of(regions: Sequence[Region], timed: Timed) -> Region:
    """What the calls of one sample executed, without what every batch costs.

    Raises EvidenceError unless the plugin counted as many instructions as the clock did, in every batch, and the same
    ones in every sample.
    """
    expected = EMPTY_BATCHES + sum(batches for batches, _ in timed.samples)
    if len(regions) != expected:
        raise EvidenceError(f"QEMU counted in {len(regions)} batches, and {expected} were timed")
    if any(other != regions[0] for other in regions[1:EMPTY_BATCHES]):
        raise EvidenceError("two empty batches executed different instructions")
    empty, batches_of_samples = batches_of(regions, timed)
    _check(empty.total - 1, timed.empty, "an empty batch")
    samples: list[Region] = []
    for batches, (_, total) in zip(batches_of_samples, timed.samples, strict=True):
        sample = together(batches)
        _check(sample.total - len(batches), total, "a sample")
        if sample.stacks:
            _check(sum(sample.stacks.values()), total, "the stacks of a sample")
        samples.append(sample.less(empty, len(batches)))
    if any(sample != samples[0] for sample in samples):
        raise EvidenceError("two samples of one guest executed different instructions")
    return samples[0]


def batches_of(regions: Sequence[Region], timed: Timed) -> tuple[Region, Sequence[Sequence[Region]]]:
    """The last empty batch, and the batches of each sample."""
    samples = []
    at = EMPTY_BATCHES
    for batches, _ in timed.samples:
        samples.append(regions[at : at + batches])
        at += batches
    return regions[EMPTY_BATCHES - 1], samples


def rounds_of(regions: Sequence[Region], timed: Sequence[tuple[int, int]]) -> Region:
    """What n rounds of a loop executed, of pairs of regions with n and 2n rounds; ``timed`` is what the clock said.

    What every run costs, whatever its rounds, is in both. Raises EvidenceError as ``sample_of``.
    """
    ticks = [one for pair in timed for one in pair]
    if len(regions) != len(ticks):
        raise EvidenceError(f"QEMU counted in {len(regions)} runs of a loop, and {len(ticks)} were timed")
    for region, by_clock in zip(regions, ticks, strict=True):
        _check(region.total - 1, by_clock, "a run of a loop")
    rounds = [twice.less(once, 1) for once, twice in zip(regions[::2], regions[1::2], strict=True)]
    if any(one != rounds[0] for one in rounds):
        raise EvidenceError("the same rounds of a loop executed different instructions")
    return rounds[0]


def _check(counted: int, by_clock: int, what: str) -> None:
    if counted != by_clock:
        # QEMU 7.2 counts an instruction before it executes it, and anew when the fault has been handled.
        twice = "an instruction that faults is counted twice: calls that fault have no profile"
        hint = twice if counted > by_clock else ""
        raise EvidenceError(f"QEMU counted {counted} instructions in {what}, and the clock {by_clock}", hint=hint)
