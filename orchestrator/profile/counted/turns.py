# SPDX-License-Identifier: GPL-2.0-only
"""Counts of QEMU's plugin for several CPUs: instructions on each, and the lines of memory that move between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import EvidenceError
from orchestrator.profile.counted.counts import not_a_region, text_lines

_REGION = re.compile(r"cpus (\d{1,19}) (\d{1,9})")
_CPU = re.compile(r"cpu (\d{1,2}) (\d{1,19}) (\d{1,19}) (\d{1,19})")
_MOVED = re.compile(r"moved ([0-9a-f]{1,16}) (\d{1,19})")


class CpuCounts(NamedTuple):
    """What a CPU executed, the lines it got from other CPUs' caches, and its accesses to contended lines."""

    instructions: int
    moved: int
    contended: int


@dataclass
class TurnsRegion:
    """A batch: ``total`` instructions of all CPUs between the leader's marks, and what each did between its own.

    ``lines`` are contended: several CPUs access them, and one writes. ``moved`` has the lines that each instruction got
    from other CPUs, by its address.
    """

    total: int
    lines: int
    cpus: dict[int, CpuCounts] = field(default_factory=dict)
    moved: dict[int, int] = field(default_factory=dict)


def read_turns(file: Path, start: int) -> Sequence[TurnsRegion]:
    """The batches that the plugin wrote after the first ``start`` bytes of its file, in order. Raises EvidenceError."""
    regions: list[TurnsRegion] = []
    for line in text_lines(file, start):
        if begun := _REGION.fullmatch(line):
            regions.append(TurnsRegion(int(begun[1]), int(begun[2])))
        elif regions and (cpu := _CPU.fullmatch(line)):
            regions[-1].cpus[int(cpu[1])] = CpuCounts(*map(int, cpu.group(2, 3, 4)))
        elif regions and (moved := _MOVED.fullmatch(line)):
            regions[-1].moved[int(moved[1], 16)] = int(moved[2])
        else:
            raise not_a_region(line, file)
    return regions


class TurnsBatch(NamedTuple):
    """A batch as it was timed: the calls of each CPU, the leader's reading of the clock, the tries before it."""

    calls: int
    ticks: int
    disturbed: int = 0


@dataclass(frozen=True)
class Turns:
    """Calls on several CPUs in turns, by call: the instructions on each CPU, and the means of all CPUs' calls.

    ``moved`` are lines that a call got from another CPU's cache, ``contended`` its accesses to contended ``lines``,
    ``by_place`` the moved lines by who accessed them.
    """

    instructions: tuple[float, ...]
    moved: float
    contended: float
    lines: int
    by_place: Mapping[str, float] = field(default_factory=dict)


def turns_of(
    regions: Sequence[TurnsRegion], batches: Sequence[TurnsBatch], cpus: int, title: Callable[[int], str]
) -> Sequence[Turns]:
    """The samples of calls on so many ``cpus``: all batches, less the first, smaller one. ``title`` names an address.

    Raises EvidenceError unless the plugin counted on each CPU, on all together as many instructions as the clock, and
    on none more than twice as many as on another, which makes the same calls.
    """
    if len(regions) != len(batches):
        raise EvidenceError(f"QEMU counted in {len(regions)} batches, and {len(batches)} were timed")
    for region, batch in zip(regions, batches, strict=True):
        if [*region.cpus] != [*range(cpus)]:
            raise EvidenceError(f"QEMU counted on CPUs {', '.join(map(str, region.cpus))}, and {cpus} made calls")
        counts = [on_cpu.instructions for on_cpu in region.cpus.values()]
        few, many = min(counts), max(counts)
        if many > 2 * few:  # as with QEMU 10.0's own number of the CPU (images/plugin/executing.h)
            raise EvidenceError(f"QEMU counted {few} instructions on one CPU, and {many} of the same calls on another")
        # A region contains both readings of the clock, their difference one of them.
        if region.total - 1 != batch.ticks:
            raise EvidenceError(
                f"QEMU counted {region.total - 1} instructions on all CPUs, and the clock {batch.ticks}"
            )
    more = batches[-1].calls - batches[0].calls
    return [_by_call(region, regions[0], more, title) for region in regions[1:]]


def _by_call(region: TurnsRegion, small: TurnsRegion, calls: int, title: Callable[[int], str]) -> Turns:
    places, all_calls = Counter[str](), calls * len(region.cpus)
    for address, lines in region.moved.items():
        places[title(address)] += lines - small.moved.get(address, 0)
    more = [
        [each - before for each, before in zip(counts, small.cpus[cpu], strict=True)]
        for cpu, counts in region.cpus.items()
    ]
    instructions, moved, contended = zip(*more, strict=True)
    return Turns(
        tuple(instruction / calls for instruction in instructions),
        sum(moved) / all_calls,
        sum(contended) / all_calls,
        region.lines,
        {
            name: lines / all_calls
            for name, lines in sorted(places.items(), key=lambda pair: (-pair[1], pair[0]))
            if lines
        },
    )
