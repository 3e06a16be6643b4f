# SPDX-License-Identifier: GPL-2.0-only
"""Export profiles as flame graphs (SVG), folded stacks, and valgrind's callgrind."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from orchestrator.report.chart import BOX_INK, INK, KERNEL, MODULE, PAPER, USER
from orchestrator.report.profile_sheets import per_call
from orchestrator.results.stored_profile import (
    NO_MISSES,
    CallCost,
    CellProfile,
    SymbolProfile,
    call_tree,
    check_stacks,
)

# A flame graph in the layout of Brendan Gregg's FlameGraph, without scripts and external references. A box is a call,
# as wide as its instructions, above its caller. The colours tell the program, modules and the kernel apart.

_WIDTH, _ROW, _MARGIN = 1200, 18, 28
_LETTER = 6.7
"""Width of a letter in the font below, in pixels."""
_NARROWEST = 0.3
"""The smallest width of a box in pixels."""


def flame_graph(profile: CellProfile) -> str:
    """A flame graph as SVG. Raises UsageError for a profile without stacks."""
    tree = call_tree(profile)
    programs = {symbol.name for symbol in profile.symbols if symbol.place == "user"}
    scale = _WIDTH / float(tree.total) if tree.total > 0 else 0.0
    bottom = _MARGIN + _rows(tree.called) * _ROW
    height = bottom + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" font-family="monospace" font-size="11">',
            f'<rect width="{_WIDTH}" height="{height}" fill="{PAPER}"/>',
            _text(f"{profile.cell}: {per_call(tree.total)} instructions per call", 18, 13),
            *_boxes(tree.called, 0.0, bottom, scale, programs),
            _text("blue: the program; orange: modules; yellow: the kernel", bottom + 18, 11),
            "</svg>\n",
        ]
    )


def _rows(calls: Sequence[CallCost]) -> int:
    return max((1 + _rows(one.called) for one in calls if one.total > 0), default=0)


def _boxes(
    calls: Sequence[CallCost], left: float, bottom: float, scale: float, programs: Container[str]
) -> Iterator[str]:
    for call in calls:
        width = float(call.total) * scale
        if width >= _NARROWEST:
            colour = MODULE if call.name.endswith("]") else USER if call.name in programs else KERNEL
            yield _box(call, left, bottom - _ROW, width, colour)
            yield from _boxes(call.called, left, bottom - _ROW, scale, programs)
        left += max(width, 0.0)


def _text(text: str, baseline: int, size: int) -> str:
    return (
        f'<text x="{_WIDTH // 2}" y="{baseline}" text-anchor="middle" font-size="{size}" fill="{INK}">'
        f"{escape(text)}</text>"
    )


def _box(call: CallCost, left: float, top: float, width: float, colour: str) -> str:
    room = int((width - 6) / _LETTER)
    label = call.name if len(call.name) <= room else call.name[: room - 2] + ".." if room > 4 else ""
    title = f"{call.name}: {per_call(call.total)} instructions per call, {per_call(call.own)} in its own code"
    return (
        f"<g><title>{escape(title)}</title>"
        f'<rect x="{left:.2f}" y="{top:.1f}" width="{width:.2f}" height="{_ROW - 1}" fill={quoteattr(colour)} '
        f'stroke="{PAPER}" stroke-width="0.5"/>'
        f'<text x="{left + 3:.2f}" y="{top + 13:.1f}" fill="{BOX_INK}">{escape(label)}</text></g>'
    )


def folded_text(profile: CellProfile) -> str:
    """Folded stacks: names separated by semicolons, and the last one's instructions in all calls.

    Raises UsageError for a profile without stacks.
    """
    check_stacks(profile)
    return "".join(f"{folded} {count}\n" for folded, count in profile.stacks)


# For KCachegrind: counts by instruction, without a call graph ("Callgrind Format Specification", version 1).

_MISSES = ("I1mr", "D1mr", "D1mw", "L2m", "ITLBm", "DTLBm")
"""Misses of fetches, loads and stores in level 1, with cachegrind's names; of all in level 2; in the TLBs."""


def callgrind_text(profile: CellProfile) -> str:
    """The counts of all calls. An object is the kernel, a module or the program; a module begins at its text."""
    details = ["Loads", "Stores", "Taken"] if profile.has_details else []
    events = ["Ir", *details, *(_MISSES if profile.caches else ())]
    counted = [(symbol, _counted(profile, symbol)) for symbol in profile.symbols]
    sums = [sum(values) for values in zip(*(counts for _, found in counted for _, counts in found), strict=True)]
    lines = [
        "# callgrind format",
        "version: 1",
        "creator: orchestrator",
        f"cmd: {profile.cell} ({profile.calls} calls)",
        "positions: instr",
        f"events: {' '.join(events)}",
        f"summary: {' '.join(map(str, sums))}",
    ]
    for symbol, found in counted:
        lines += ["", f"ob={symbol.module or symbol.place}", "fl=???", f"fn={symbol.name}"]
        lines += [f"{symbol.address + offset:#x} {' '.join(map(str, counts))}" for offset, counts in found]
    return "".join(f"{line}\n" for line in lines)


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
