# SPDX-License-Identifier: GPL-2.0-only
"""Labelled rows and columns as text: right-aligned, and in several parts where they are too wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

GAP = "  "
_HEADING_WIDTHS = (18, 12, 9)
"""Widths at which headings may be wrapped, widest first."""


@dataclass(frozen=True)
class Row:
    """One row: a label and a text for each column, set in a rich ``style``.

    ``depth`` is how far down a tree it is, by which its label is indented.
    """

    label: str
    cells: Sequence[str]
    style: str = ""
    depth: int = 0

    @property
    def indented(self) -> str:
        """The label as it is set in text."""
        return " " * self.depth + self.label


@dataclass(frozen=True)
class Grid:
    """Columns under ``headings``, and ``blocks`` of rows with a rule above each.

    Each run of ``together`` columns stays on one line. With ``narrowest``, labels are folded down to so many characters
    where the columns fit on fewer lines then.
    """

    headings: Sequence[str]
    blocks: Sequence[Sequence[Row]]
    together: int = 1
    narrowest: int | None = None

    def lines(self, width: int, rule: str) -> Iterator[Text]:
        """Set the grid in ``width`` characters, with rules made of the character ``rule``.

        Columns that do not fit follow below, under the same labels. Each part has at least one column.
        """
        whole = max(len(row.indented) for block in self.blocks for row in block)
        folded = [] if self.narrowest is None else [_Fitted(self, fold, 0).needed for fold in _HEADING_WIDTHS]
        widths = [whole, *(min(whole, max(self.narrowest or 0, width - needed)) for needed in folded)]
        # The widest labels and headings that leave the grid in the fewest parts.
        fitted = [(one, _Fitted(self, fold, width - one)) for one in widths for fold in _HEADING_WIDTHS]
        labels, fitting = min(fitted, key=lambda one: (one[1].overflows, len(one[1].parts)))
        for index, part in enumerate(fitting.parts):
            if index:
                yield Text()
            yield from self._part(part, fitting, labels, rule)

    def _part(self, columns: Sequence[int], fitted: _Fitted, labels: int, rule: str) -> Iterator[Text]:
        widths = [fitted.widths[column] for column in columns]
        headings = [fitted.headings[column] for column in columns]
        height = max(len(heading) for heading in headings)
        for line in range(height):
            # A short heading stands directly above its figures.
            words = [heading[line - height] if line - height >= -len(heading) else "" for heading in headings]
            yield _line("", words, labels, widths, "bold")
        for block in self.blocks:
            yield Text(rule * (labels + sum(len(GAP) + width for width in widths)), style="dim")
            for row in block:
                label, *rest = _folded(row, labels)
                yield _line(label, [row.cells[column] for column in columns], labels, widths, row.style)
                yield from (Text(line, style=row.style) for line in rest)


class _Fitted:
    """A grid with its headings folded to ``fold`` characters, parted into lines of ``width`` behind the labels."""

    def __init__(self, grid: Grid, fold: int, width: int) -> None:
        self.headings = [textwrap.wrap(heading, fold) for heading in grid.headings]
        self.widths = [
            max(len(text) for text in [*heading, *(row.cells[column] for block in grid.blocks for row in block)])
            for column, heading in enumerate(self.headings)
        ]
        self.needed = sum(len(GAP) + one for one in self.widths)
        self.parts: list[list[int]] = []
        self.overflows = False
        used = width
        for start in range(0, len(self.widths), grid.together):
            columns = range(start, min(start + grid.together, len(self.widths)))
            needed = sum(len(GAP) + self.widths[column] for column in columns)
            self.overflows |= needed > width
            if not self.parts or used + needed > width:
                self.parts.append([])
                used = 0
            self.parts[-1].extend(columns)
            used += needed


def _folded(row: Row, width: int) -> list[str]:
    """The label in lines of a width, parted behind a slash, an underscore or a dot if there is one."""
    if len(row.indented) <= width:
        return [row.indented]
    indent = " " * row.depth
    lines, rest = [], row.label
    while len(rest) > width - len(indent):
        room = rest[: width - len(indent)]
        end = max(room.rfind(mark) for mark in "/_. ") + 1 or len(room)
        lines.append(indent + rest[:end].rstrip())
        indent, rest = " " * (row.depth + 1), rest[end:]
    return [*lines, indent + rest]


def _line(label: str, cells: Sequence[str], labels: int, widths: Sequence[int], style: str) -> Text:
    figures = "".join(GAP + cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return Text((label.ljust(labels) + figures).rstrip(), style=style)
