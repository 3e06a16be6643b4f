# SPDX-License-Identifier: GPL-2.0-only
"""Regions as QEMU's counting plugin writes them: counts, stacks, order, cache misses, classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import EvidenceError, NoProfile
from orchestrator.profile.stored.cell_profile import Misses

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


class ExecutedBlock(NamedTuple):
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
    order: list[ExecutedBlock] = field(default_factory=list, compare=False)

    def executed(self) -> Mapping[int, int]:
        """How often instructions were executed, by their addresses: a probed place has two codes."""
        times = Counter[int]()
        for code, counts in self.counts.items():
            times[code.address] += counts.executed
        return times

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


Classes = Mapping[str, int]
"""How many instructions of each class a region executed."""


def read_classes(file: Path, start: int) -> Sequence[Classes]:
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


def _takes(region: Region, line: str) -> bool:
    """Add a line that follows a region's instructions. False for any other line."""
    if stack := _STACK.fullmatch(line):
        block, *frames = (int(word, 16) for word in stack[2].split())
        region.stacks[(*frames, block)] = int(stack[1])
    elif passed := _ORDER.fullmatch(line):
        last = Code(int(passed[4], 16), passed[5])
        region.order.append(ExecutedBlock(int(passed[1], 16), int(passed[2]), int(passed[3]), last))
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
