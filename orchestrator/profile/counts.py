# SPDX-License-Identifier: GPL-2.0-only
"""Counts of QEMU's counting plugin: regions, samples, timed work, modelled cache misses, purposes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple, TypeVar

from orchestrator.catalog.cpus import CacheName, CpuCaches
from orchestrator.catalog.purposes import OTHER, purpose_of_function, purpose_of_generated
from orchestrator.errors import EvidenceError, NoProfile
from orchestrator.results.stored_profile import CacheProfile, CellProfile, Misses, sum_of

_LARGEST_FILE = 65 << 20
"""The plugin stops at 64 MiB."""

_ENTRY = re.compile(r"([0-9a-f]{1,16}) ((?:[0-9a-f]{2}){0,15}) (\d{1,19}) (\d{1,19}) (\d{1,19}) (\d{1,19})")
_MISSED = re.compile(r"missed ([0-9a-f]{1,16}) ((?:[0-9a-f]{2}){1,15})((?: \d{1,19}){6})")
_ORDER = re.compile(r"order ([0-9a-f]{1,16}) (\d{1,4}) (\d{1,3}) ([0-9a-f]{1,16}) ((?:[0-9a-f]{2}){1,15})")
_STACK = re.compile(r"stack (\d{1,19}) ([0-9a-f]{1,16}(?: [0-9a-f]{1,16}){0,129})")


class Code(NamedTuple):
    """An instruction: its virtual address, and its bytes as hex, since probes patch code.

    Address 0 without bytes stands for all instructions of user space, if they are counted together.
    """

    address: int
    code: str


class Counts(NamedTuple):
    """How often an instruction was executed, its loads and stores, and how often it branched elsewhere."""

    executed: int
    loads: int = 0
    stores: int = 0
    taken: int = 0


NONE = Counts(0)


class Lookups(NamedTuple):
    """Lookups in the model of a cache."""

    hits: int
    misses: int


Stack = tuple[int, ...]
"""Addresses: the entry of each function, outermost first, and finally the block of code itself."""


class Passed(NamedTuple):
    """A block of code as it was executed: its instructions, in how many calls it was, and its last instruction."""

    address: int
    instructions: int
    depth: int
    last: Code


@dataclass(frozen=True)
class Region:
    """What one region executed: ``total`` instructions, by instruction in ``counts``.

    ``stacks`` has the same by block of code and call stack, if these were followed, without the region's first
    instruction, which belongs to the clock; ``order`` has each block as it was executed. ``lookups`` and ``misses``
    are those of the models of caches, if there are any. They depend on what earlier batches left in a cache, so
    equality of regions ignores them.
    """

    total: int
    counts: Mapping[Code, Counts]
    stacks: dict[Stack, int] = field(default_factory=dict)
    lookups: dict[str, Lookups] = field(default_factory=dict, compare=False)
    misses: dict[Code, Misses] = field(default_factory=dict, compare=False)
    order: list[Passed] = field(default_factory=list, compare=False)

    def less(self, other_region: Region, times: int) -> Region:
        """Subtract another region ``times`` times; empty entries are dropped."""
        left = together([self, other_region], (1, -times))
        return Region(
            left.total,
            {code: counts for code, counts in left.counts.items() if counts != NONE},
            {stack: count for stack, count in left.stacks.items() if count},
        )


def together(regions: Sequence[Region], times: Iterable[int] | None = None) -> Region:
    """The sum of regions, each ``times`` as often."""
    total, sums, stacks = 0, dict[Code, Counts](), Counter[Stack]()
    for region, factor in zip(regions, times or repeat(1), strict=False):
        total += factor * region.total
        for code, counts in region.counts.items():
            executed, loads, stores, taken = sums.get(code, NONE)
            sums[code] = Counts(
                executed + factor * counts.executed,
                loads + factor * counts.loads,
                stores + factor * counts.stores,
                taken + factor * counts.taken,
            )
        for stack, count in region.stacks.items():
            stacks[stack] += factor * count
    return Region(total, sums, dict(stacks))


def text_lines(file: Path, start: int) -> Iterator[str]:
    """The lines behind the first ``start`` bytes of a plugin's file. Raises EvidenceError."""
    try:
        with file.open("rb") as opened:
            opened.seek(start)
            text = opened.read(_LARGEST_FILE).decode("ascii", errors="replace")
    except OSError as error:
        raise EvidenceError(f"QEMU's counts cannot be read: {error.strerror}", where=str(file)) from None
    return iter(text.splitlines())


def read_regions(file: Path, start: int) -> list[Region]:
    """The regions that the plugin wrote after the first ``start`` bytes of its file, in order.

    Raises EvidenceError if the plugin could not count everything, or the file is malformed.
    """
    regions: list[Region] = []
    lines = text_lines(file, start)
    for line in lines:
        if not regions or not _takes(regions[-1], line):
            regions.append(_region(line, lines, file))
    return regions


_Classes = Mapping[str, int]
"""How many instructions of each class a region executed."""


def read_classes(file: Path, start: int) -> Sequence[_Classes]:
    """The classes of the regions that the plugin wrote after the first ``start`` bytes of its file.

    Raises as ``read_regions``.
    """
    regions: list[dict[str, int]] = []
    for line in text_lines(file, start):
        match = re.fullmatch(r"class (\d{1,19}) ([a-z0-9 ]{1,20})", line)
        if line == "classes":
            regions.append({})
        elif match is None or not regions or regions[-1].setdefault(match[2], int(match[1])) != int(match[1]):
            raise not_a_region(line, file)
    if any(region.keys() != regions[0].keys() for region in regions):
        raise _damaged("classes", file)
    return regions


def classes_of(regions: Sequence[_Classes], timed: Timed) -> _Classes:
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


def _takes(region: Region, line: str) -> bool:
    """Add a line that follows a region's instructions. False for any other line."""
    if stack := _STACK.fullmatch(line):
        block, *frames = (int(word, 16) for word in stack[2].split())
        region.stacks[(*frames, block)] = int(stack[1])
    elif passed := _ORDER.fullmatch(line):
        last = Code(int(passed[4], 16), passed[5])
        region.order.append(Passed(int(passed[1], 16), int(passed[2]), int(passed[3]), last))
    elif missed := _MISSED.fullmatch(line):
        region.misses[Code(int(missed[1], 16), missed[2])] = Misses(*map(int, missed[3].split()))
    elif cache := re.fullmatch(r"cache (l1i|l1d|l2|itlb|dtlb) (\d{1,19}) (\d{1,19})", line):
        region.lookups[cache[1]] = Lookups(int(cache[2]), int(cache[3]))
    else:
        return False
    return True


def _region(heading: str, lines: Iterable[str], file: Path) -> Region:
    match = re.fullmatch(r"region (\d{1,19}) (\d{1,9})", heading)
    if match is None:
        raise not_a_region(heading, file)
    counts: dict[Code, Counts] = {}
    for line in islice(lines, int(match[2])):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise _damaged(line, file)
        counts[Code(int(entry[1], 16), entry[2])] = Counts(*map(int, entry.group(3, 4, 5, 6)))
    region = Region(int(match[1]), counts)
    if len(counts) != int(match[2]) or sum(count.executed for count in counts.values()) != region.total:
        raise _damaged(heading, file)
    return region


def not_a_region(line: str, file: Path) -> EvidenceError:
    """The error for a line that does not begin a region: the plugin's own error, or damage."""
    if line.startswith("error "):
        hint = "measure less at a time: fewer benchmark.calls, or benchmark.repeats of a whole system"
        return NoProfile(f"QEMU could not count all instructions: {line[6:200]}", where=str(file), hint=hint)
    return _damaged(line, file)


def _damaged(line: str, file: Path) -> EvidenceError:
    return EvidenceError("QEMU's counts are malformed", where=str(file), detail=[line[:200]])


# The instructions of one sample, and the proof that the plugin counted what the clock did: a region contains both
# readings of the clock, so it is one instruction longer.

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


# Work that is timed as a whole, with its ticks and page faults, and the proof that the plugin counted all of it.
#
# QEMU's plugin counts an instruction when it begins, so a faulting one is counted again after the fault; the clock
# counts it once. While a CPU sleeps, the clock advances to the next timer, and nothing is executed. So for each region
# between two marks
#
#     clock <= instructions <= clock + faults    without a hlt
#              instructions <= clock + faults    with one
#              instructions <= clock + faults    with one


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


def by_purpose(profile: CellProfile, mechanism: str) -> Mapping[str, int]:
    """The instructions of all calls by purpose, with a probe of this ``mechanism``; they add up to the profile's."""
    sums: Counter[str] = Counter()
    for symbol in profile.symbols:
        match symbol.place:
            case "user":
                purpose = OTHER
            case "generated":
                purpose = purpose_of_generated(mechanism)
            case _:
                purpose = purpose_of_function(symbol.name, symbol.module)
        sums[purpose] += symbol.executed
    return dict(sums)
