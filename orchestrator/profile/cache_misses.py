# SPDX-License-Identifier: GPL-2.0-only
"""What the calls of a sample miss in the models of caches, and the proof that the models have seen all of them.

Instructions that only the clock executes are left out, as they are of the counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.catalog.cpu_caches import CacheName, CpuCaches
from orchestrator.errors import EvidenceError
from orchestrator.profile.counts import Code, Region
from orchestrator.profile.sample import Timed, batches_of
from orchestrator.results.misses import CacheProfile, Misses, sum_of

_PAGE = 4096


@dataclass(frozen=True)
class CacheMisses:
    """Each cache, and what each instruction missed."""

    caches: tuple[CacheProfile, ...] = ()
    by_code: Mapping[Code, Misses] = field(default_factory=dict)


def cache_misses(regions: Sequence[Region], timed: Timed, sample: Region, cpu: CpuCaches) -> CacheMisses:
    """The misses of the calls that ``sample`` has, which follow from the ``regions`` that the plugin kept.

    Raises EvidenceError where a model has not seen each executed instruction and each access, or does not miss as often
    as the instructions together.
    """
    for region in regions:
        check_lookups(region, cpu)
    empty, samples = batches_of(regions, timed)
    found = [_missed(batches, sample) for batches in samples]
    totals = [sum_of(misses.values()) for misses in found]
    accesses: dict[CacheName, int] = {
        name: sum(sum(batch.lookups[name]) for batch in samples[0]) - len(samples[0]) * sum(empty.lookups[name])
        for name in cpu.all
    }
    # What reaches level 2 depends on what level 1 has: those of the clock's own instructions cannot be subtracted.
    accesses["l2"] = totals[0].of("l1i") + totals[0].of("l1d")
    return CacheMisses(
        tuple(
            CacheProfile(
                name=name,
                size=cache.size,
                ways=cache.ways,
                line=cache.line,
                accesses=accesses[name],
                misses=totals[0].of(name),
                repeated=totals[-1].of(name),
            )
            for name, cache in cpu.all.items()
        ),
        found[0],
    )


def work_misses(regions: Sequence[Region], again: Region, cpu: CpuCaches) -> CacheMisses:
    """What work missed that is timed as a whole, ticks and page faults included; ``again`` is some of it once more.

    Raises EvidenceError as ``cache_misses`` does.
    """
    for region in (*regions, again):
        check_lookups(region, cpu)
    missed: dict[Code, list[Misses]] = {}
    for region in regions:
        for code, one in region.misses.items():
            missed.setdefault(code, []).append(one)
    caches = [
        CacheProfile(
            name=name,
            size=cache.size,
            ways=cache.ways,
            line=cache.line,
            accesses=sum(sum(region.lookups[name]) for region in regions),
            misses=sum(region.lookups[name].misses for region in regions),
            repeated=again.lookups[name].misses,
        )
        for name, cache in cpu.all.items()
    ]
    return CacheMisses(tuple(caches), {code: sum_of(found) for code, found in missed.items()})


def _missed(batches: Sequence[Region], sample: Region) -> Mapping[Code, Misses]:
    codes = {code: None for batch in batches for code in batch.misses if code in sample.counts}
    return {code: sum_of(batch.misses[code] for batch in batches if code in batch.misses) for code in codes}


def check_lookups(region: Region, cpu: CpuCaches) -> None:
    """Raise EvidenceError unless the models saw what a region executed, and missed as often as its instructions.

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


def _expected(region: Region, cpu: CpuCaches) -> Iterator[tuple[CacheName, range]]:
    """How many accesses a region has, as its counts say."""
    yield "itlb", _exactly(region.total)
    lines = sum(one.executed * _lines(code, cpu.l1i.line) for code, one in region.counts.items())
    yield "l1i", _exactly(lines)
    data = sum(one.loads + one.stores for one in region.counts.values())
    yield "dtlb", range(data, 2 * data + 1)
    yield "l2", _exactly(region.lookups["l1i"].misses + region.lookups["l1d"].misses)


def _exactly(number: int) -> range:
    return range(number, number + 1)


def _lines(code: Code, line: int) -> int:
    """Lines that an instruction is on, of its first page."""
    last = min(code.address + len(code.code) // 2, (code.address // _PAGE + 1) * _PAGE) - 1
    return last // line - code.address // line + 1
