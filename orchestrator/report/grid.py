# SPDX-License-Identifier: GPL-2.0-only
"""Grids of labels and figures, fitted into a width in characters."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

GAP = "  "
_HEADING_WIDTHS = (18, 12, 9)
"""Widths to wrap headings at, widest first."""


@dataclass(frozen=True)
class Row:
    """A label and a text per column, in a rich ``style``; ``depth`` in a tree indents the label."""

    label: str
    cells: Sequence[str]
    style: str = ""
    depth: int = 0

    @property
    def indented(self) -> str:
        return " " * self.depth + self.label


@dataclass(frozen=True)
class Grid:
    """Columns under ``headings``, and ``blocks`` of rows with a rule above each.

    Each group of ``together`` columns stays on one line. With ``narrowest``, labels may be folded to so many
    characters if the columns then fit on fewer lines.
    """

    headings: Sequence[str]
    blocks: Sequence[Sequence[Row]]
    together: int = 1
    narrowest: int | None = None

    def lines(self, width: int, rule: str = "─") -> Iterator[Text]:
        """The grid in ``width`` characters, with rules of the character ``rule``.

        Columns that do not fit follow below with the same labels, and not the last one alone if that can be.
        """
        rows = [row for block in self.blocks for row in block]
        whole = max(len(row.indented) for row in rows)
        word = max(len(piece) + row.depth + 1 for row in rows for piece in _pieces(row.label))
        narrowest = max(self.narrowest or 0, word)
        folded = [] if self.narrowest is None else [_Fitted(self, fold, 0).needed for fold in _HEADING_WIDTHS]
        widths = [whole, *(min(whole, max(narrowest, width - needed)) for needed in folded)]
        # The widest labels and headings with the fewest parts.
        fitted = [(labels, _Fitted(self, fold, width - labels)) for labels in widths for fold in _HEADING_WIDTHS]
        labels, fitting = min(fitted, key=lambda pair: (pair[1].excess, len(pair[1].parts)))
        for index, part in enumerate(fitting.parts):
            if index:
                yield Text()
            yield from self._part(part, fitting, labels, rule)

    def _part(self, columns: Sequence[int], fitted: _Fitted, labels: int, rule: str) -> Iterator[Text]:
        widths = [fitted.widths[column] for column in columns]
        headings = [fitted.headings[column] for column in columns]
        height = max(len(heading) for heading in headings)
        for line in range(height):
            # Align headings at the bottom, next to their figures.
            words = [heading[line - height] if line - height >= -len(heading) else "" for heading in headings]
            yield _line("", words, labels, widths, "bold")
        for block in self.blocks:
            yield Text(rule * (labels + sum(len(GAP) + width for width in widths)), style="dim")
            for row in block:
                label, *rest = _folded(row, labels)
                yield _line(label, [row.cells[column] for column in columns], labels, widths, row.style)
                yield from (Text(line, style=row.style) for line in rest)


class _Fitted:
    """A grid with headings folded to ``fold`` characters, split into parts of ``width`` besides the labels."""

    def __init__(self, grid: Grid, fold: int, width: int) -> None:
        self.headings = [_wrapped(heading, fold) for heading in grid.headings]
        self.widths = [
            max(len(text) for text in [*heading, *(row.cells[column] for block in grid.blocks for row in block)])
            for column, heading in enumerate(self.headings)
        ]
        self.needed = sum(len(GAP) + column_width for column_width in self.widths)
        self.parts: list[list[int]] = []
        self.excess = 0
        used = width
        for start in range(0, len(self.widths), grid.together):
            columns = range(start, min(start + grid.together, len(self.widths)))
            needed = sum(len(GAP) + self.widths[column] for column in columns)
            self.excess = max(self.excess, needed - width)
            if not self.parts or used + needed > width:
                self.parts.append([])
                used = 0
            self.parts[-1].extend(columns)
            used += needed
        self._accompany_the_last(grid.together, width)

    def _accompany_the_last(self, together: int, width: int) -> None:
        """Give a last column that stands alone the one before it, where that leaves two."""
        *_, before, last = self.parts if len(self.parts) > 1 else [[], []]
        if together == len(last) == 1 and len(before) > 2:
            needed = sum(len(GAP) + self.widths[column] for column in (before[-1], *last))
            if needed <= width:
                last.insert(0, before.pop())


def _pieces(text: str) -> list[str]:
    """What a name may be split into: parts that end with a slash, an underscore, a dot, a space and the like."""
    return [piece for piece in re.split(r"(?<=[/_,:+= -])|(?<=\.)(?!\d)", text) if piece]


def _wrapped(heading: str, width: int) -> list[str]:
    """A heading in lines of ``width``, or of its longest word: no word is cut."""
    lines: list[str] = []
    for line in textwrap.wrap(heading, width, break_long_words=False):
        begun = len(lines)
        for piece in [line] if len(line) <= width else _pieces(line):
            if len(lines) > begun and len(lines[-1]) + len(piece) <= width:
                lines[-1] += piece
            else:
                lines.append(piece)
    return [line.rstrip() for line in lines]


def _folded(row: Row, width: int) -> list[str]:
    """The label in lines of ``width``, split after a slash, an underscore or a dot if possible."""
    if len(row.indented) <= width:
        return [row.indented]
    indent = " " * row.depth
    lines, rest = [], row.label
    while len(rest) > width - len(indent):
        room = rest[: width - len(indent)]
        ends = (max(room.rfind(mark) for mark in marks) + 1 for marks in ("/_. ", "+-:=,"))
        end = next(filter(None, ends), len(room))
        lines.append(indent + rest[:end].rstrip())
        indent, rest = " " * (row.depth + 1), rest[end:]
    return [*lines, indent + rest]


def _line(label: str, cells: Sequence[str], labels: int, widths: Sequence[int], style: str) -> Text:
    figures = "".join(GAP + cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return Text((label.ljust(labels) + figures).rstrip(), style=style)
