# SPDX-License-Identifier: GPL-2.0-only
"""Flame graphs in the layout of Brendan Gregg's FlameGraph, without scripts and external references.

A box is a call, as wide as its instructions, above its caller. The colours tell the program, modules and the
kernel apart.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from orchestrator.profile.printed.profile_sheets import per_call
from orchestrator.profile.stored.call_tree import CallCost, call_tree
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.report.chart import BOX_INK, INK, KERNEL, MODULE, PAPER, USER

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
            _svg_text(f"{profile.cell}: {per_call(tree.total)} instructions per call", 18, 13),
            *_boxes(tree.called, 0.0, bottom, scale, programs),
            _svg_text("blue: the program; orange: modules; yellow: the kernel", bottom + 18, 11),
            "</svg>\n",
        ]
    )


def _rows(calls: Sequence[CallCost]) -> int:
    return max((1 + _rows(call.called) for call in calls if call.total > 0), default=0)


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


def _svg_text(text: str, baseline: int, size: int) -> str:
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
