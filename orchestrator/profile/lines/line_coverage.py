# SPDX-License-Identifier: GPL-2.0-only
"""How often each source line was executed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from orchestrator.profile.lines.by_line import Sources, located_instructions
from orchestrator.profile.lines.line_source import Frame
from orchestrator.profile.stored.cell_profile import CellProfile


def executed_lines(executed: Iterable[tuple[int, tuple[Frame, ...]]]) -> Iterator[tuple[Frame, int]]:
    """How often lines were executed, from the executions of each instruction: for each place that one is inlined to.

    A line counts as often as its most executed instruction, a line that only calls an inlined function as often as the
    rarest one there.
    """
    counts: dict[tuple[Frame, ...], int] = {}
    calls: dict[tuple[Frame, ...], int] = {}
    for count, frames in executed:
        if frames:
            counts[frames] = max(counts.get(frames, 0), count)
        for at in range(1, len(frames)):  # an inlined loop is called as often as its rarest instruction
            known = calls.get(frames[at:], 0)
            calls[frames[at:]] = min(known or count, count or known)
    return ((frames[0], max(counts.get(frames, 0), calls.get(frames, 0))) for frames in {**counts, **calls})


def coverage(profile: CellProfile, sources: Sources) -> Mapping[str, Mapping[int, int]]:
    """How often each line of the executed functions was executed, 0 for not at all; by file and line."""
    lines: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for symbol, source, located in located_instructions(profile, sources, is_whole=True):
        if source is None:
            continue
        whole = [(0, frames) for frames in source.lines_of(*source.parts_of(symbol)).values()]
        executed = [(instruction_count.executed, frames) for instruction_count, frames in located]
        for inner, count in executed_lines([*whole, *executed]):
            lines[inner.file][inner.line] += count
    return lines
