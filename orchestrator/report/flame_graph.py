# SPDX-License-Identifier: GPL-2.0-only
"""A profile's stacks as a flame graph: an SVG whose boxes are as wide as what they and all they call execute.

The layout is that of Brendan Gregg's FlameGraph: callers below, what they call above. A box says in its title what it
stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from xml.sax.saxutils import escape, quoteattr

from orchestrator.report.figures import number
from orchestrator.report.folded_stacks import folded_text
from orchestrator.results.profile import CellProfile

_WIDTH, _ROW, _MARGIN = 1200, 18, 28
_LETTER = 6.6
"""Width of a letter in the font below, in pixels."""
_NARROWEST = 0.3
"""Pixels below which a box is left out."""
_USER, _MODULE, _KERNEL = "#9ec6e6", "#f2b5a0", "#f3d98b"
"""The program, code of modules, code of the kernel."""


@dataclass
class _Box:
    """A function as it was called from another one: its own instructions, and what it called."""

    own: int = 0
    called: dict[str, _Box] = field(default_factory=dict)

    @property
    def executed(self) -> int:
        return self.own + sum(one.executed for one in self.called.values())

    @property
    def height(self) -> int:
        return 1 + max((one.height for one in self.called.values()), default=0)


def flame_graph(profile: CellProfile) -> str:
    """The picture as SVG. Raises UsageError for a profile without stacks."""
    root = _Box()
    for line in folded_text(profile).splitlines():
        folded, _, count = line.rpartition(" ")
        box = root
        for name in folded.split(";"):
            box = box.called.setdefault(name, _Box())
        box.own += int(count)
    height = (root.height - 1) * _ROW + 2 * _MARGIN
    total = number(float(Fraction(profile.executed, profile.calls)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="monospace" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_WIDTH // 2}" y="18" text-anchor="middle" font-size="13">'
        f"{escape(profile.cell)}: {total} instructions per call</text>",
    ]
    scale = _WIDTH / root.executed if root.executed > 0 else 0.0
    parts += _boxes(profile, root, 0.0, height - _MARGIN, scale)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _boxes(profile: CellProfile, caller: _Box, left: float, bottom: float, scale: float) -> Iterator[str]:
    for name, box in sorted(caller.called.items()):
        width = box.executed * scale
        if width >= _NARROWEST:
            yield _drawn(profile, name, box, (left, bottom - _ROW, width))
            yield from _boxes(profile, box, left, bottom - _ROW, scale)
        left += width


def _drawn(profile: CellProfile, name: str, box: _Box, place: tuple[float, float, float]) -> str:
    left, top, width = place
    figures = [number(float(Fraction(count, profile.calls))) for count in (box.executed, box.own)]
    title = f"{name}: {figures[0]} instructions per call, {figures[1]} of its own"
    room = int((width - 6) / _LETTER)
    label = name if len(name) <= room else name[: room - 2] + ".." if room > 4 else ""
    colour = _MODULE if name.endswith("]") else _USER if name in _programs(profile) else _KERNEL
    return (
        f"<g><title>{escape(title)}</title>"
        f'<rect x="{left:.2f}" y="{top:.1f}" width="{width:.2f}" height="{_ROW - 1}" fill={quoteattr(colour)} '
        'stroke="#ffffff" stroke-width="0.5"/>'
        f'<text x="{left + 3:.2f}" y="{top + 13:.1f}">{escape(label)}</text></g>'
    )


def _programs(profile: CellProfile) -> set[str]:
    return {symbol.name for symbol in profile.symbols if symbol.place == "user"}
