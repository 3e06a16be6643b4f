# SPDX-License-Identifier: GPL-2.0-only
"""Columns of any table: what a row's item has under a heading, as rows of a sheet, as text, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from orchestrator.report.footnotes import Footnote, Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.results.contract import CellRecord

ItemT = TypeVar("ItemT")
SubjectT = TypeVar("SubjectT")


@dataclass(frozen=True)
class Column(Generic[ItemT]):
    """A heading, and what an item has in this column: a text, or a value that ``text`` writes.

    An ``optional`` column is left out of a table where no row has a text in it.
    """

    heading: str
    value: Callable[[ItemT], Any]
    optional: bool = False

    def text(self, item: ItemT) -> str:
        """The item's value as a text; nothing for None."""
        value = self.value(item)
        return "" if value is None else str(value)


class Columns(Generic[ItemT]):
    """The columns of a table, and the rows and the grid that they make of items.

    ``together`` and ``narrowest`` say how the grid is fitted into a width: see ``Grid``.
    """

    def __init__(self, columns: Iterable[Column[ItemT]], together: int = 1, narrowest: int | None = None) -> None:
        self._columns = list(columns)
        self._together, self._narrowest = together, narrowest

    @property
    def headings(self) -> Sequence[str]:
        return [column.heading for column in self._columns]

    def row(self, label: str, item: ItemT, style: str = "", depth: int = 0) -> Row:
        """The item's row, in the form of ``Row``."""
        return Row(label, [column.text(item) for column in self._columns], style, depth)

    def texts(self, label: str, texts: Sequence[str], style: str = "", depth: int = 0) -> Row:
        """A row of these texts in the first columns, such as an exponent below them, and none in the others."""
        return Row(label, [*texts, *[""] * (len(self._columns) - len(texts))], style, depth)

    def title(self, label: str, style: str = "bold") -> Row:
        """A row that has nothing but a label, such as the title of the rows below it."""
        return self.texts(label, (), style)

    def grid(self, *blocks: Iterable[Row]) -> Grid:
        """The grid of these blocks of rows, without empty blocks and unused columns."""
        filled = [rows for rows in map(list, blocks) if rows]
        used = [
            place
            for place, column in enumerate(self._columns)
            if not column.optional or any(row.cells[place] for rows in filled for row in rows)
        ]
        narrowed = [[replace(row, cells=[row.cells[place] for place in used]) for row in rows] for rows in filled]
        headings = [self._columns[place].heading for place in used]
        return Grid(headings, narrowed, self._together, self._narrowest)

    def csv(self, items: Iterable[ItemT], line_end: str = "\r\n") -> str:
        """RFC 4180 text: a line of headings, and one for each item."""
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator=line_end)
        writer.writerow(self.headings)
        writer.writerows([column.value(item) for column in self._columns] for item in items)
        return file.getvalue()


def columns_of(subjects: Iterable[SubjectT], heading: Callable[[SubjectT], str]) -> list[Column[Figure[SubjectT]]]:
    """A column for each subject (a cell, a kernel, a size), for tables whose rows are functions of the subject."""

    def column(subject: SubjectT) -> Column[Figure[SubjectT]]:
        return Column(heading(subject), lambda figure: figure(subject))

    return [column(subject) for subject in subjects]


Figure = Callable[[SubjectT], str]
"""A row of a table that has a column for each subject: the text of each."""


def cell_columns(
    columns: Sequence[Column[CellRecord]], footnotes: Footnotes, otherwise: str = ""
) -> Columns[CellRecord]:
    """Columns of cells, with the marks of a cell's footnotes in the first one.

    A cell without a number has its status there, and ``otherwise`` in the other columns.
    """

    def first(cell: CellRecord, column: Column[CellRecord]) -> str:
        return (cell.status if cell.value is None else column.text(cell)) + footnotes.marks(cell)

    def later(cell: CellRecord, column: Column[CellRecord]) -> str:
        return otherwise if cell.value is None else column.text(cell)

    return Columns(
        replace(column, value=partial(later if place else first, column=column)) for place, column in enumerate(columns)
    )


class Remarks:
    """Numbered remarks of a table, each printed once: ``mark`` gives the mark of a text, `` [1]``."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._failures: set[str] = set()

    def mark(self, text: str, *, failure: bool = False) -> str:
        """The mark of a remark, an empty text for an empty one; the first mention numbers it."""
        if not text:
            return ""
        number = self._numbers.setdefault(text, len(self._numbers) + 1)
        if failure:
            self._failures.add(text)
        return f" [{number}]"

    def footnotes(self) -> list[Footnote]:
        return [Footnote(number, text, text in self._failures) for text, number in self._numbers.items()]
