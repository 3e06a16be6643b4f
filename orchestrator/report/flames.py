# SPDX-License-Identifier: GPL-2.0-only
"""Profiles for other viewers: flame graphs as SVG, folded stacks, and valgrind's callgrind.

The layout is that of Brendan Gregg's FlameGraph. A box says in its title what it stands for; the picture has no script
and refers to nothing outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from xml.sax.saxutils import escape, quoteattr

from orchestrator.report.chart import BOX_INK, INK, KERNEL, LESS, MODULE, MORE, PAPER, SAME, USER
from orchestrator.report.profile_sheets import per_call, signed
from orchestrator.results.stored_profile import (
    NO_MISSES,
    ZERO,
    CallChange,
    CallCost,
    CellProfile,
    SymbolProfile,
    call_tree,
    check_stacks,
    compared_trees,
)

# Flame graphs as SVG: boxes for calls, what is called above its caller, each box as wide as its instructions.

_WIDTH, _ROW, _MARGIN = 1200, 18, 28
_LETTER = 6.7
"""Width of a letter in the font below, in pixels."""
_NARROWEST = 0.3
"""Pixels below which a box is left out."""


@dataclass(frozen=True)
class Box:
    """How a call is drawn: its name, its ``width`` in instructions, title and colour; ``above`` is what it calls."""

    name: str
    width: Fraction
    title: str
    colour: str
    above: Sequence[Box]

    @property
    def height(self) -> int:
        """Rows of boxes, its own among them."""
        return 1 + max((one.height for one in self.above if one.width > 0), default=0)


@dataclass(frozen=True)
class Heap:
    """Boxes at the bottom, below a ``heading``."""

    heading: str
    boxes: Sequence[Box]

    @property
    def width(self) -> Fraction:
        return sum((one.width for one in self.boxes), start=ZERO)

    @property
    def height(self) -> int:
        return max((one.height for one in self.boxes if one.width > 0), default=0)


def picture(heaps: Sequence[Heap], remark: str = "") -> str:
    """The heaps one below the other, at one scale: the widest has the whole width. ``remark`` stands at the end."""
    widest = max((heap.width for heap in heaps), default=ZERO)
    scale = _WIDTH / float(widest) if widest > 0 else 0.0
    parts: list[str] = []
    bottom = 0
    for heap in heaps:
        parts.append(_text(heap.heading, bottom + 18, 13))
        bottom += _MARGIN + heap.height * _ROW
        parts += _boxes(heap.boxes, 0.0, bottom, scale)
    if remark:
        parts.append(_text(remark, bottom + 18, 11))
    height = bottom + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" font-family="monospace" font-size="11">',
            f'<rect width="{_WIDTH}" height="{height}" fill="{PAPER}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _boxes(boxes: Sequence[Box], left: float, bottom: float, scale: float) -> Iterator[str]:
    for box in boxes:
        width = float(box.width) * scale
        if width >= _NARROWEST:
            yield _drawn(box, left, bottom - _ROW, width)
            yield from _boxes(box.above, left, bottom - _ROW, scale)
        left += max(width, 0.0)


def _text(text: str, baseline: int, size: int) -> str:
    return (
        f'<text x="{_WIDTH // 2}" y="{baseline}" text-anchor="middle" font-size="{size}" fill="{INK}">'
        f"{escape(text)}</text>"
    )


def _drawn(box: Box, left: float, top: float, width: float) -> str:
    room = int((width - 6) / _LETTER)
    label = box.name if len(box.name) <= room else box.name[: room - 2] + ".." if room > 4 else ""
    return (
        f"<g><title>{escape(box.title)}</title>"
        f'<rect x="{left:.2f}" y="{top:.1f}" width="{width:.2f}" height="{_ROW - 1}" fill={quoteattr(box.colour)} '
        f'stroke="{PAPER}" stroke-width="0.5"/>'
        f'<text x="{left + 3:.2f}" y="{top + 13:.1f}" fill="{BOX_INK}">{escape(label)}</text></g>'
    )


# A profile's stacks as a flame graph: its colours tell the program, modules and the kernel apart.

_PROFILE_REMARK = "blue: the program; orange: modules; yellow: the kernel"


def flame_graph(profile: CellProfile) -> str:
    """The picture as SVG. Raises UsageError for a profile without stacks."""
    tree = call_tree(profile)
    programs = {symbol.name for symbol in profile.symbols if symbol.place == "user"}

    def box(call: CallCost) -> Box:
        title = f"{call.name}: {per_call(call.total)} instructions per call, {per_call(call.own)} of its own"
        colour = MODULE if call.name.endswith("]") else USER if call.name in programs else KERNEL
        return Box(call.name, call.total, title, colour, [box(one) for one in call.called])

    heading = f"{profile.cell}: {per_call(tree.total)} instructions per call"
    return picture([Heap(heading, [box(one) for one in tree.called])], _PROFILE_REMARK)


# A flame graph of what differs between two profiles: red where a function executes more itself, blue where less.
#
# After Brendan Gregg's differential flame graphs (brendangregg.com/blog/2014-11-09/differential-flame-graphs.html):
# widths are those of one profile, colours are of the change. What only the first one has is in no box of the second
# one's widths, so there is a heap of boxes for each, at one scale.

_PALEST = Fraction(1, 5)
"""Of the colour for the smallest change, so that it is seen."""
_DIFFERENCE_REMARK = "red: executes more itself, blue: less, the deeper the colour the more; grey: as much"


def difference_flame_graph(before: CellProfile, after: CellProfile) -> str:
    """The picture as SVG: above as wide as after, below as wide as before. Raises UsageError without stacks."""
    tree = compared_trees(call_tree(before), call_tree(after))
    largest = _largest(tree)

    def heap(side: int, profile: CellProfile, which: str) -> Heap:
        def box(call: CallChange) -> Box:
            above = [box(one) for one in call.called]
            return Box(call.name, call.totals[side], _title(call), _colour(call.own_change, largest), above)

        heading = f"{which}: {profile.cell}, {per_call(tree.totals[side])} instructions per call"
        if side:
            heading += f" ({signed(tree.change)})"
        return Heap(heading, [box(one) for one in tree.called])

    return picture([heap(1, after, "after"), heap(0, before, "before")], _DIFFERENCE_REMARK)


def _title(call: CallChange) -> str:
    before, after = (per_call(None if one is None else one.total) for one in (call.before, call.after))
    return (
        f"{call.name}: {before} -> {after} instructions per call ({signed(call.change)}), own {signed(call.own_change)}"
    )


def _largest(call: CallChange) -> Fraction:
    return max((abs(call.own_change), *(_largest(one) for one in call.called)), default=ZERO)


def _colour(change: Fraction, largest: Fraction) -> str:
    if not change:
        return _hex(SAME)
    depth = _PALEST + (1 - _PALEST) * abs(change) / largest
    full = MORE if change > 0 else LESS
    return _hex(tuple(round(pale + (deep - pale) * depth) for pale, deep in zip(SAME, full, strict=True)))


def _hex(colour: tuple[int, ...]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)


# A profile's stacks, folded: a line for each, as flame graph programs read them.


def folded_text(profile: CellProfile) -> str:
    """Names with semicolons between, and the instructions of the last one in all calls.

    Raises UsageError where there are none.
    """
    check_stacks(profile)
    return "".join(f"{folded} {count}\n" for folded, count in profile.stacks)


# A profile in the format of valgrind's callgrind, for KCachegrind: counts by instruction, without a call graph.
#
# The format is documented in valgrind's manual, "Callgrind Format Specification", version 1.

_MISSES = ("I1mr", "D1mr", "D1mw", "L2m", "ITLBm", "DTLBm")
"""Misses of fetches, loads and stores in level 1, as cachegrind names them; of all three in level 2; of the TLBs."""


def callgrind_text(profile: CellProfile) -> str:
    """All calls together. An object is the kernel, a module or the program; a module begins at its text."""
    return "".join(f"{line}\n" for line in _lines(profile))


def _lines(profile: CellProfile) -> Iterator[str]:
    details = ["Loads", "Stores", "Taken"] if profile.has_details else []
    events = ["Ir", *details, *(_MISSES if profile.caches else ())]
    yield "# callgrind format"
    yield "version: 1"
    yield "creator: orchestrator"
    yield f"cmd: {profile.cell} ({profile.calls} calls)"
    yield "positions: instr"
    yield f"events: {' '.join(events)}"
    lines = [(symbol, _counted(profile, symbol)) for symbol in profile.symbols]
    sums = [sum(values) for values in zip(*(counts for _, found in lines for _, counts in found), strict=True)]
    yield f"summary: {' '.join(map(str, sums))}"
    for symbol, found in lines:
        yield ""
        yield f"ob={symbol.module or symbol.place}"
        yield "fl=???"
        yield f"fn={symbol.name}"
        for offset, counts in found:
            yield f"{symbol.address + offset:#x} {' '.join(map(str, counts))}"


def _counted(profile: CellProfile, symbol: SymbolProfile) -> Sequence[tuple[int, tuple[int, ...]]]:
    """The counts of each instruction by its offset, in the order of the events."""
    missed = {(one.offset, one.code): one.misses for one in symbol.misses}
    return [
        (
            one.offset,
            (
                one.executed,
                *((one.loads, one.stores, one.taken) if profile.has_details else ()),
                *(missed.get((one.offset, one.code), NO_MISSES) if profile.caches else ()),
            ),
        )
        for one in symbol.instructions
    ]
