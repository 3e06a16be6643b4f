# SPDX-License-Identifier: GPL-2.0-only
"""The instructions of one sample, and the proof that the plugin counted what the clock did.

A region contains both readings of the clock, so it is one instruction longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.errors import EvidenceError, NoProfile
from orchestrator.profile.counted.counts import Classes, Region


def classes_of(regions: Sequence[Classes], timed: Timed) -> Classes:
    """The instructions by class that the calls of one sample executed, without the batches' own cost.

    Raises EvidenceError unless each sample executed as many of each class.
    """
    empty, samples = samples_of(regions, timed)
    classes = [
        {name: sample[name] - batches * count for name, count in empty.items()}
        for sample, (batches, _) in zip(samples, timed.samples, strict=True)
    ]
    if any(sample_classes != classes[0] for sample_classes in classes[1:]):
        raise EvidenceError("two samples of one guest executed different classes of instructions")
    return classes[0]


EMPTY_BATCHES = 2
"""Empty batches that ``bench.c`` makes before its samples."""


@dataclass(frozen=True)
class Timed:
    """The clock's readings, in instructions: of an empty batch, and of each sample with its number of batches."""

    empty: int
    samples: Sequence[tuple[int, int]]


def sample_of(regions: Sequence[Region], timed: Timed) -> Region:
    """What the calls of one sample executed, without the cost of the batches themselves.

    Raises EvidenceError unless the plugin counted as many instructions as the clock did, in every batch, and the same
    ones in every sample.
    """
    empty, whole = samples_of(regions, timed)
    if any(other_region != regions[0] for other_region in regions[1:EMPTY_BATCHES]):
        raise EvidenceError("two empty batches executed different instructions")
    _check(empty.total - 1, timed.empty, "an empty batch")
    samples: list[Region] = []
    for sample, (batches, total) in zip(whole, timed.samples, strict=True):
        _check(sample.total - batches, total, "a sample")
        if sample.stacks:
            _check(sum(sample.stacks.values()), total, "the stacks of a sample")
        samples.append(sample.less(empty, batches))
    if any(sample != samples[0] for sample in samples):
        raise NoProfile("two samples of one guest executed different instructions, though as many")
    return samples[0]


_Counted = TypeVar("_Counted")


def samples_of(regions: Sequence[_Counted], timed: Timed) -> tuple[_Counted, Sequence[_Counted]]:
    """The last empty batch, and the batches of each sample together. Raises EvidenceError for too few or too many."""
    counted, expected = len(regions) - EMPTY_BATCHES, len(timed.samples)
    if counted != expected:
        raise EvidenceError(f"QEMU counted {max(0, counted)} samples, and {expected} were timed")
    return regions[EMPTY_BATCHES - 1], regions[EMPTY_BATCHES:]


def rounds_of(regions: Sequence[Region], timed: Sequence[tuple[int, int]]) -> Region:
    """What n rounds of a loop executed, from pairs of regions with n and 2n rounds; ``timed`` has the clock's readings.

    The fixed cost of a run is in both. Raises EvidenceError as ``sample_of``.
    """
    ticks = [by_clock for pair in timed for by_clock in pair]
    if len(regions) != len(ticks):
        raise EvidenceError(f"QEMU counted in {len(regions)} runs of a loop, and {len(ticks)} were timed")
    for region, by_clock in zip(regions, ticks, strict=True):
        _check(region.total - 1, by_clock, "a run of a loop")
    rounds = [twice.less(once, 1) for once, twice in zip(regions[::2], regions[1::2], strict=True)]
    if any(region != rounds[0] for region in rounds):
        raise EvidenceError("the same rounds of a loop executed different instructions")
    return rounds[0]


def _check(counted: int, by_clock: int, what: str) -> None:
    differ = f"QEMU counted {counted} instructions in {what}, and the clock {by_clock}"
    if counted > by_clock:
        # QEMU 7.2 counts an instruction before it executes it, and again after a fault was handled.
        raise NoProfile(f"{differ}: one that faults is counted twice, and calls that fault have no profile")
    if counted < by_clock:
        raise EvidenceError(differ)
