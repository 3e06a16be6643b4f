# SPDX-License-Identifier: GPL-2.0-only
"""Misses in the plugin's models of caches, and the proof that these have seen every access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.catalog.cpus import CacheName, CpuCaches
from orchestrator.errors import EvidenceError
from orchestrator.profile.counted.counts import Code, Region
from orchestrator.profile.counted.timed_samples import Timed, samples_of
from orchestrator.profile.stored.cell_profile import CacheProfile, Misses, sum_of

_PAGE = 4096


@dataclass(frozen=True)
class CacheMisses:
    """Each cache, and the misses of each instruction."""

    caches: tuple[CacheProfile, ...] = ()
    by_code: Mapping[Code, Misses] = field(default_factory=dict)


def cache_misses(regions: Sequence[Region], timed: Timed, sample: Region, cpu: CpuCaches) -> CacheMisses:
    """The misses of the calls in ``sample``, derived from the plugin's ``regions``.

    Raises EvidenceError if a model has not seen each executed instruction and each access, or if its misses differ from
    the sum over the instructions.
    """
    for region in regions:
        check_lookups(region, cpu)
    empty, samples = samples_of(regions, timed)
    misses_of_each = [
        {code: misses for code, misses in region.misses.items() if code in sample.counts} for region in samples
    ]
    totals = [sum_of(misses.values()) for misses in misses_of_each]
    batches, _ = timed.samples[0]
    accesses: dict[CacheName, int] = {
        name: sum(samples[0].lookups[name]) - batches * sum(empty.lookups[name]) for name in cpu.all
    }
    # Level 2 sees what misses level 1: the clock's own instructions cannot be subtracted.
    accesses["l2"] = totals[0].of("l1i") + totals[0].of("l1d")
    caches = (_cache(cpu, name, accesses[name], totals[0].of(name), totals[-1].of(name)) for name in cpu.all)
    return CacheMisses(tuple(caches), misses_of_each[0])


def work_misses(regions: Sequence[Region], again: Region, cpu: CpuCaches) -> CacheMisses:
    """The misses of work that is timed as a whole; ``again`` is part of it repeated. Raises as ``cache_misses``."""
    for region in (*regions, again):
        check_lookups(region, cpu)
    caches = []
    for name in cpu.all:
        lookups = [region.lookups[name] for region in regions]
        misses = sum(lookup.misses for lookup in lookups)
        caches.append(_cache(cpu, name, sum(map(sum, lookups)), misses, again.lookups[name].misses))
    return CacheMisses(tuple(caches), _missed(regions))


def _cache(cpu: CpuCaches, name: CacheName, accesses: int, misses: int, repeated: int) -> CacheProfile:
    geometry = cpu.all[name]
    return CacheProfile(
        name=name,
        size=geometry.size,
        ways=geometry.ways,
        line=geometry.line,
        accesses=accesses,
        misses=misses,
        repeated=repeated,
    )


def _missed(regions: Iterable[Region]) -> Mapping[Code, Misses]:
    missed: dict[Code, list[Misses]] = {}
    for region in regions:
        for code, misses in region.misses.items():
            missed.setdefault(code, []).append(misses)
    return {code: sum_of(misses_of_each) for code, misses_of_each in missed.items()}


def check_lookups(region: Region, cpu: CpuCaches) -> None:
    """Raise EvidenceError unless the models saw what a region executed, and their misses add up by instruction.

    An access that crosses a page is looked up twice in the TLB.
    """
    if region.lookups.keys() != cpu.all.keys():
        raise EvidenceError("QEMU has modelled no caches, or not all of them")
    missed = sum_of(region.misses.values())
    for name in cpu.all:
        if missed.of(name) != region.lookups[name].misses:
            what = f"{region.lookups[name].misses} times in {name}, and its instructions {missed.of(name)} times"
            raise EvidenceError(f"a batch missed {what}")
    for name, expected in _expected(region, cpu):
        if sum(region.lookups[name]) not in expected:
            what = f"{sum(region.lookups[name])} accesses to {name}, and {expected[0]} were executed"
            raise EvidenceError(f"the model of a cache has seen {what}")


def _expected(region: Region, cpu: CpuCaches) -> Iterator[tuple[CacheName, Sequence[int]]]:
    yield "itlb", (region.total,)
    lines = sum(counts.executed * _lines(code, cpu.l1i.line) for code, counts in region.counts.items())
    yield "l1i", (lines,)
    data = sum(count.loads + count.stores for count in region.counts.values())
    yield "dtlb", range(data, 2 * data + 1)
    yield "l2", (region.lookups["l1i"].misses + region.lookups["l1d"].misses,)


def _lines(code: Code, line: int) -> int:
    """The number of cache lines that an instruction occupies, on its first page."""
    last = min(code.address + len(code.code) // 2, (code.address // _PAGE + 1) * _PAGE) - 1
    return last // line - code.address // line + 1
