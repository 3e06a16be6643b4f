# SPDX-License-Identifier: GPL-2.0-only
"""From the order of executed blocks of code to the time line of one call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, pairwise, takewhile

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.machine_code import disassembled
from orchestrator.errors import EvidenceError
from orchestrator.profile.counted.counts import Code, ExecutedBlock, Region
from orchestrator.profile.counted.places import THUNK, Owner, Places, titled
from orchestrator.profile.counted.timed_samples import Timed, samples_of
from orchestrator.profile.stored.timeline import TimelineSpan

ORDERED_CALLS = 3
"""Calls of a sample whose order is kept."""

_ENTRIES = ("int3", "int ", "syscall", "sysenter")
_EXITS = ("iret", "sysexit", "sysret")


def middle_call(regions: Sequence[Region], timed: Timed) -> Sequence[ExecutedBlock]:
    """The blocks of a call in the middle of the last batch, from where the program's loop begins it to its next round.

    Raises EvidenceError where a batch is not that of no calls with rounds of the loop inserted.
    """
    empty, samples = samples_of(regions, timed)
    batch, none = samples[-1].order, empty.order
    before = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(batch, none, strict=False)))
    behind = len(batch) - (len(none) - before)
    if behind <= before or batch[behind:] != none[before:]:
        raise EvidenceError("the order of a batch's blocks does not show where its calls begin and end")
    first = batch[before]
    starts = [at for at in range(before, behind) if batch[at][::2] == first[::2]]
    ends = [*starts[1:], behind]
    return batch[starts[len(starts) // 2] : ends[len(starts) // 2]]


def _by_function(
    blocks: Iterable[ExecutedBlock], executed: Sequence[int], owner_of: _OwnerOf
) -> Iterator[ExecutedBlock]:
    """The blocks, divided where a function goes over into the next; ``executed`` are the sorted addresses of code."""
    for block in blocks:
        first = bisect_left(executed, block.address)
        inside = executed[first : first + block.instructions]
        if len(inside) < block.instructions or inside[-1] != block.last.address:  # code that was patched meanwhile
            yield block
            continue
        for _, part in groupby(inside, owner_of):
            address, *rest = part
            yield block._replace(address=address, instructions=1 + len(rest))


_OwnerOf = Callable[[int], Owner]


@dataclass
class _Open:
    """A function that was entered, ``level`` calls deep; ``is_jumped`` if by a jump from another one."""

    owner: Owner
    address: int
    level: int
    depth: int
    start: int
    entered: str = ""
    is_jumped: bool = False
    own: int = 0
    end: int = 0
    left: str = ""

    def span(self) -> TimelineSpan:
        name, place = titled(self.owner.function), self.owner.place
        total = self.end - self.start
        return TimelineSpan(name, place, self.address, self.depth, self.start, total, self.own, self.entered, self.left)


def spans(blocks: Sequence[ExecutedBlock], executed: Iterable[Code], places: Places) -> Sequence[TimelineSpan]:
    """The spans of one call, from its blocks and all ``executed`` instructions.

    Calls within user space are one span, and a function replaces one that jumps to it.
    Raises EvidenceError for a call that leaves the function which makes it.
    """
    word = ARCHITECTURES[places.arch].word
    tree = _Tree(cache(places.owner), cache(lambda code: disassembled(bytes.fromhex(code), 0, word)))
    divided = list(_by_function(blocks, sorted({code.address for code in executed}), tree.owner_of))
    for before, block in pairwise((divided[0], *divided)):
        tree.add(before, block)
    return tree.spans()


@dataclass
class _Tree:
    """All functions in the order in which they were entered, and those ``within`` which execution is ``now``."""

    owner_of: _OwnerOf
    text_of: Callable[[str], str]
    entered: list[_Open] = field(default_factory=list)
    within: list[_Open] = field(default_factory=list)
    now: int = 0

    def add(self, before: ExecutedBlock, block: ExecutedBlock) -> None:
        """A block, and the one ``before`` it, which is the first one itself of that."""
        owner, how = self.owner_of(block.address), self.text_of(before.last.code)
        while self.within and self.within[-1].level > block.depth:
            self._leave(how)
        if self.entered and not self.within:
            raise EvidenceError("the call leaves the function that makes it", detail=[titled(owner.function)])
        if not self.entered:
            self._enter(block, "", is_jumped=False)
        elif block.depth > before.depth:
            # A retpoline calls itself.
            if self.within[-1].owner != owner or (owner.place != "user" and not _is_thunk(owner)):
                mark = how if how.startswith(_ENTRIES) else "" if how.startswith("call") else "exception"
                self._enter(block, mark, is_jumped=False)
        else:
            # What an exception returns to instead, such as a kprobe's slot, is in the function that it has interrupted.
            is_elsewhere = block.depth < before.depth and how.startswith("iret") and not self._has(owner, block.depth)
            while self.within[-1].owner != owner and not is_elsewhere and _is_replaced(self.within[-1], block):
                self._leave("")
            if self.within[-1].owner != owner:
                self._enter(block, "", is_jumped=True)
        self.within[-1].own += block.instructions
        self.now += block.instructions

    def _has(self, owner: Owner, level: int) -> bool:
        return any(function.owner == owner and function.level == level for function in self.within)

    def _enter(self, block: ExecutedBlock, how: str, *, is_jumped: bool) -> None:
        owner, depth = self.owner_of(block.address), len(self.within)
        self.within.append(_Open(owner, block.address, block.depth, depth, self.now, how, is_jumped))
        self.entered.append(self.within[-1])

    def _leave(self, how: str) -> None:
        function = self.within.pop()
        function.end, function.left = self.now, how if function.entered and how.startswith(_EXITS) else ""

    def spans(self) -> Sequence[TimelineSpan]:
        while self.within:
            self._leave("")
        return [function.span() for function in self.entered]


def _is_replaced(top: _Open, block: ExecutedBlock) -> bool:
    return _is_thunk(top.owner) or (top.is_jumped and top.level == block.depth)


def _is_thunk(owner: Owner) -> bool:
    return owner.function.name.startswith(THUNK)
