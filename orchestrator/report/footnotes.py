# SPDX-License-Identifier: GPL-2.0-only
"""Footnotes of a table: the notes of its cells, and the reasons of cells without a number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.plain_text import counted, listed
from orchestrator.results.contract import CellRecord

_OF_ONE_BOOT = re.compile(r"\[ *\d+\.\d+\]|\b(?:0x)?[0-9a-f]{8,16}\b|\b[0-9a-f]{24}\b")
"""Parts of messages that differ between guests: log times, addresses, and cache keys."""


def shared_key(text: str) -> str:
    """A text without the parts that differ between guests."""
    return _OF_ONE_BOOT.sub("", text)


def by_reason(cells: Iterable[CellRecord]) -> list[Sequence[CellRecord]]:
    """The cells without a number, grouped by status and reason, in the order of the first cells."""
    groups: dict[tuple[str, str], list[CellRecord]] = {}
    for cell in cells:
        if cell.reason is not None:
            groups.setdefault((cell.status, shared_key(cell.reason)), []).append(cell)
    return list(groups.values())


@dataclass(frozen=True)
class Footnote:
    """A note of one or more lines; without ``mark`` on all numbers of the table.

    ``reason`` is the end of the text that notes of other tables may repeat, or empty.
    """

    mark: int | None
    text: str
    failure: bool = False
    reason: str = ""


class Footnotes:
    """The notes of a table's cells, numbered in the cells' order, without duplicates.

    ``name`` gives a cell's name in the table, ``remark`` the table's own note on a cell.
    """

    def __init__(
        self,
        cells: Sequence[CellRecord],
        name: Callable[[CellRecord], str],
        remark: Callable[[CellRecord], str | None],
    ) -> None:
        self._marks: dict[str, list[int]] = {cell.id: [] for cell in cells}
        self._notes: list[Footnote] = []
        concerned: dict[str, list[CellRecord]] = {}
        for cell in cells:
            table_note = remark(cell)
            for sentence in [*([table_note] if table_note else []), *cell.notes]:
                concerned.setdefault(sentence, []).append(cell)
        valid = [cell for cell in cells if cell.status == "ok"]
        for sentence, group in concerned.items():
            if len(group) >= len(valid) > 1:
                self._notes.append(Footnote(None, f"All: {sentence}"))
        without_number = {alike[0].id: alike for alike in by_reason(cells)}
        for cell in cells:
            alike = without_number.get(cell.id)
            if alike is not None:
                count = f" ({counted(len(alike), 'cell')})" if len(alike) > 1 else ""
                names = listed([name(alike_cell) for alike_cell in alike])
                self._add(alike, f"{names} {cell.status}{count}: ", cell.reason or "", failure=True)
            for sentence in [sentence for sentence, group in concerned.items() if group[0] is cell]:
                group = concerned[sentence]
                if not len(group) >= len(valid) > 1:
                    self._add(
                        group,
                        f"{listed([name(alike_cell) for alike_cell in group])}: ",
                        sentence,
                        failure=False,
                    )

    def all(self) -> Sequence[Footnote]:
        return self._notes

    def marks(self, cell: CellRecord) -> str:
        """The marks of a cell's notes, `` [1] [2]``, or an empty text."""
        return "".join(f" [{mark}]" for mark in self._marks[cell.id])

    def _add(self, cells: Sequence[CellRecord], subject: str, reason: str, *, failure: bool) -> None:
        text = subject + reason
        known = {(note.text, note.failure): note.mark for note in self._notes if note.mark is not None}
        mark = known.get((text, failure))
        if mark is None:
            mark = len(known) + 1
            self._notes.append(Footnote(mark, text, failure, reason))
        for cell in cells:
            self._marks[cell.id].append(mark)
