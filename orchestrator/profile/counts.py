# SPDX-License-Identifier: GPL-2.0-only
"""What QEMU's counting plugin has written: each kept region with its instructions (see ``images/plugin/count.c``)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import EvidenceError
from orchestrator.results.misses import Misses

_LARGEST_FILE = 65 << 20
"""The plugin stops at 64 MiB."""

_REGION = re.compile(r"region (\d{1,19}) (\d{1,9})")
_ENTRY = re.compile(r"([0-9a-f]{1,16}) ((?:[0-9a-f]{2}){0,15}) (\d{1,19}) (\d{1,19}) (\d{1,19}) (\d{1,19})")


_CACHE = re.compile(r"cache (l1i|l1d|l2|itlb|dtlb) (\d{1,19}) (\d{1,19})")
_MISSED = re.compile(r"missed ([0-9a-f]{1,16}) ((?:[0-9a-f]{2}){1,15})((?: \d{1,19}){6})")
_STACK = re.compile(r"stack (\d{1,19}) ([0-9a-f]{1,16}(?: [0-9a-f]{1,16}){0,128})")


class Code(NamedTuple):
    """An instruction: its virtual address, and its bytes as hex, since probes patch code.

    No bytes at 0: all instructions of user space, where they are counted together.
    """

    address: int
    code: str


class Counts(NamedTuple):
    """How often an instruction was executed, what it loaded and stored, how often it went on elsewhere."""

    executed: int
    loads: int = 0
    stores: int = 0
    taken: int = 0


NONE = Counts(0)


class Lookups(NamedTuple):
    """What was looked up in the model of a cache."""

    hits: int
    misses: int


Stack = tuple[int, ...]
"""Addresses: where each function was entered, the outermost first, and at the end the block of code itself."""


@dataclass(frozen=True)
class Region:
    """What one region executed: ``total`` instructions, one by one in ``counts``.

    ``stacks`` has the same by block of code and what led to it, where that was followed; it lacks the region's first
    instruction, which is the clock's. ``lookups`` and ``misses`` are those of the models of caches, where there are
    any. Other batches may have left other things in a cache, so they are no part of what makes two regions equal.
    """

    total: int
    counts: Mapping[Code, Counts]
    stacks: Mapping[Stack, int] = field(default_factory=dict)
    lookups: Mapping[str, Lookups] = field(default_factory=dict, compare=False)
    misses: Mapping[Code, Misses] = field(default_factory=dict, compare=False)

    def less(self, other: Region, times: int) -> Region:
        """Without another region, so many times; what is left of nothing is left out."""
        left = {}
        for code in {**self.counts, **other.counts}:
            mine, theirs = self.counts.get(code, NONE), other.counts.get(code, NONE)
            left[code] = Counts(*(one - times * its for one, its in zip(mine, theirs, strict=True)))
        stacks = dict(self.stacks)
        for stack, count in other.stacks.items():
            stacks[stack] = stacks.get(stack, 0) - times * count
        return Region(
            self.total - times * other.total,
            {code: one for code, one in left.items() if one != NONE},
            {stack: count for stack, count in stacks.items() if count},
        )


def together(regions: Sequence[Region]) -> Region:
    """The sum of regions."""
    sums: dict[Code, Counts] = {}
    for region in regions:
        for code, counts in region.counts.items():
            sums[code] = Counts(*(one + other for one, other in zip(sums.get(code, NONE), counts, strict=True)))
    stacks: Counter[Stack] = Counter()
    for region in regions:
        stacks.update(region.stacks)
    return Region(sum(region.total for region in regions), sums, dict(stacks))


def read_regions(file: Path, start: int) -> list[Region]:
    """The regions that the plugin wrote behind the first ``start`` bytes of its file, in order.

    Raises EvidenceError where the plugin could not count all, or the file is not what it writes.
    """
    try:
        with file.open("rb") as opened:
            opened.seek(start)
            text = opened.read(_LARGEST_FILE).decode("ascii", errors="replace")
    except OSError as error:
        raise EvidenceError(f"QEMU's counts cannot be read: {error.strerror}", where=str(file)) from None
    regions: list[_Read] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not regions or not regions[-1].takes(line):
            regions.append(_Read(_region(line, lines, file)))
    return [one.region for one in regions]


class _Read:
    """A region, and what follows its instructions."""

    def __init__(self, counted: Region) -> None:
        self._counted = counted
        self._stacks: dict[Stack, int] = {}
        self._lookups: dict[str, Lookups] = {}
        self._misses: dict[Code, Misses] = {}

    @property
    def region(self) -> Region:
        return Region(self._counted.total, self._counted.counts, self._stacks, self._lookups, self._misses)

    def takes(self, line: str) -> bool:
        """Whether the line belongs to this region."""
        if stack := _STACK.fullmatch(line):
            block, *frames = (int(word, 16) for word in stack[2].split())
            self._stacks[(*frames, block)] = int(stack[1])
        elif missed := _MISSED.fullmatch(line):
            self._misses[Code(int(missed[1], 16), missed[2])] = Misses(*map(int, missed[3].split()))
        elif cache := _CACHE.fullmatch(line):
            self._lookups[cache[1]] = Lookups(int(cache[2]), int(cache[3]))
        else:
            return False
        return True


def _region(heading: str, lines: Iterable[str], file: Path) -> Region:
    if heading.startswith("error "):
        hint = "measure less at a time: fewer benchmark.calls, or benchmark.repeats of a whole system"
        raise EvidenceError(f"QEMU could not count all instructions: {heading[6:200]}", where=str(file), hint=hint)
    match = _REGION.fullmatch(heading)
    if match is None:
        raise _damaged(heading, file)
    counts: dict[Code, Counts] = {}
    for line in _next(lines, int(match[2])):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise _damaged(line, file)
        counts[Code(int(entry[1], 16), entry[2])] = Counts(*map(int, entry.group(3, 4, 5, 6)))
    region = Region(int(match[1]), counts)
    if len(counts) != int(match[2]) or sum(one.executed for one in counts.values()) != region.total:
        raise _damaged(heading, file)
    return region


def _next(lines: Iterable[str], number: int) -> Iterable[str]:
    return (line for _, line in zip(range(number), lines, strict=False))


def _damaged(line: str, file: Path) -> EvidenceError:
    return EvidenceError("QEMU's counts are not what its plugin writes", where=str(file), detail=[line[:200]])
