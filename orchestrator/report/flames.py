# SPDX-License-Identifier: GPL-2.0-only
"""Flame graphs as SVG: boxes for calls, what is called above its caller, each box as wide as its instructions.

The layout is that of Brendan Gregg's FlameGraph. A box says in its title what it stands for; the picture has no script
and refers to nothing outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar
from xml.sax.saxutils import escape, quoteattr

from orchestrator.report.palette import BOX_INK, INK, PAPER

_WIDTH, _ROW, _MARGIN = 1200, 18, 28
_LETTER = 6.7
"""Width of a letter in the font below, in pixels."""
_NARROWEST = 0.3
"""Pixels below which a box is left out."""

CallT = TypeVar("CallT")


@dataclass(frozen=True)
class Box:
    """How a call is drawn: its name, its ``width`` in instructions, its title, its colour (``#rrggbb``)."""

    name: str
    width: Fraction
    title: str
    colour: str


@dataclass(frozen=True)
class Flames(Generic[CallT]):
    """One heap of boxes below a ``heading``: what is ``called`` by a call is drawn as ``box`` says."""

    heading: str
    root: CallT
    called: Callable[[CallT], Sequence[CallT]]
    box: Callable[[CallT], Box]

    @property
    def width(self) -> Fraction:
        """Instructions of all calls at the bottom."""
        return sum((self.box(one).width for one in self.called(self.root)), start=Fraction(0))

    @property
    def height(self) -> int:
        """Rows of boxes."""
        return self._height(self.root) - 1

    def boxes(self, scale: float, bottom: float) -> Iterator[str]:
        """The boxes as SVG, ``scale`` pixels wide for each instruction."""
        return self._boxes(self.root, 0.0, bottom, scale)

    def _height(self, call: CallT) -> int:
        above = (self._height(one) for one in self.called(call) if self.box(one).width > 0)
        return 1 + max(above, default=0)

    def _boxes(self, caller: CallT, left: float, bottom: float, scale: float) -> Iterator[str]:
        for call in self.called(caller):
            box = self.box(call)
            width = float(box.width) * scale
            if width >= _NARROWEST:
                yield _drawn(box, left, bottom - _ROW, width)
                yield from self._boxes(call, left, bottom - _ROW, scale)
            left += max(width, 0.0)


def picture(heaps: Sequence[Flames[CallT]], remark: str = "") -> str:
    """The heaps one below the other, at one scale: the widest has the whole width. ``remark`` stands at the end."""
    widest = max((heap.width for heap in heaps), default=Fraction(0))
    scale = _WIDTH / float(widest) if widest > 0 else 0.0
    parts: list[str] = []
    bottom = 0
    for heap in heaps:
        parts.append(_text(heap.heading, bottom + 18, 13))
        bottom += _MARGIN + heap.height * _ROW
        parts += heap.boxes(scale, bottom)
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
