# SPDX-License-Identifier: GPL-2.0-only
"""How labelled rows and columns are set as text: right-aligned, and in several parts where they are too wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

GAP = "  "
_WIDEST_HEADING = 18


@dataclass(frozen=True)
class Row:
    """One row: a label and a text for each column, set in a rich ``style``."""

    label: str
    cells: Sequence[str]
    style: str = ""


@dataclass(frozen=True)
class Grid:
    """Columns under ``headings``, and ``blocks`` of rows with a rule above each."""

    headings: Sequence[str]
    blocks: Sequence[Sequence[Row]]

    def lines(self, width: int, rule: str) -> Iterator[Text]:
        """Set the grid in ``width`` characters, with rules made of the character ``rule``.

        Columns that do not fit follow below, under the same labels. One column is set however narrow it gets.
        """
        labels = max(len(row.label) for block in self.blocks for row in block)
        for index, part in enumerate(self._parts(width - labels)):
            if index:
                yield Text()
            yield from self._part(part, labels, rule)

    def _parts(self, width: int) -> Iterator[list[int]]:
        part: list[int] = []
        used = 0
        for column in range(len(self.headings)):
            needed = len(GAP) + self._column_width(column)
            if part and used + needed > width:
                yield part
                part, used = [], 0
            part.append(column)
            used += needed
        if part:
            yield part

    def _part(self, columns: list[int], labels: int, rule: str) -> Iterator[Text]:
        widths = [self._column_width(column) for column in columns]
        headings = [_folded(self.headings[column]) for column in columns]
        height = max(len(heading) for heading in headings)
        for line in range(height):
            # A short heading stands directly above its figures.
            words = [heading[line - height] if line - height >= -len(heading) else "" for heading in headings]
            yield _line("", words, labels, widths, "bold")
        for block in self.blocks:
            yield Text(rule * (labels + sum(len(GAP) + width for width in widths)), style="dim")
            for row in block:
                yield _line(row.label, [row.cells[column] for column in columns], labels, widths, row.style)

    def _column_width(self, column: int) -> int:
        texts = [row.cells[column] for block in self.blocks for row in block] + _folded(self.headings[column])
        return max(len(text) for text in texts)


def _folded(heading: str) -> list[str]:
    return textwrap.wrap(heading, _WIDEST_HEADING)


def _line(label: str, cells: Sequence[str], labels: int, widths: Sequence[int], style: str) -> Text:
    figures = "".join(GAP + cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return Text((label.ljust(labels) + figures).rstrip(), style=style)
