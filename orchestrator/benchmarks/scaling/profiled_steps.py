# SPDX-License-Identifier: GPL-2.0-only
"""The profile of the steps of one row, and what the functions that find a kprobe missed in models of caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.benchmarks.scaling.figures import MarkedSteps
from orchestrator.benchmarks.scaling.rows import kprobe_cache
from orchestrator.catalog.cpu_caches import CacheName
from orchestrator.errors import EvidenceError
from orchestrator.results.contract import ProfileEvidence
from orchestrator.results.profile import CellProfile
from orchestrator.run.unattended_profile import WorkCounts

LOOKUPS = ("get_kprobe", "get_kprobe_cached", "__get_kprobe")
"""One lookup: the kernel's own function, and those of images/patches/kprobe-cache.patch."""
CACHES: tuple[CacheName, ...] = ("l1d", "l2")


@dataclass(frozen=True)
class StepsProfile:
    """The proof of a profile, and misses as a cell's parameters: of each cache in all, and of each function."""

    proof: ProfileEvidence
    misses: Mapping[str, int]


def profiled_steps(counts: WorkCounts, steps: MarkedSteps, cell: str, file: Path) -> StepsProfile:
    """Write the profile of a row's steps. Raises EvidenceError unless all was counted."""
    last = max(*steps.numbers, steps.again or 0)
    if last >= len(counts.regions):
        raise EvidenceError(f"QEMU has kept {len(counts.regions)} steps, and not step {last}")
    work = counts.counted([counts.regions[number] for number in steps.numbers], steps.ticks)
    again = None if steps.again is None else counts.regions[steps.again]
    profile = counts.profile(work, cell, calls=steps.count, unit=steps.unit, again=again)
    return StepsProfile(counts.write(work, profile, file), dict(_misses(profile)))


def _misses(profile: CellProfile) -> Iterator[tuple[str, int]]:
    names = [*LOOKUPS[1:], *(name for shares in kprobe_cache().published.misses.values() for name in shares)]
    for cache in CACHES if profile.caches else ():
        yield f"{cache}_misses", profile.missed.of(cache)
        for name in dict.fromkeys(names):
            yield f"{cache}_{name}", sum(one.missed.of(cache) for one in profile.symbols if one.name == name)
