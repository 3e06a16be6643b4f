# SPDX-License-Identifier: GPL-2.0-only
"""The notes below a table, and the marks that refer to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.counted import counted
from orchestrator.report.findings import listed
from orchestrator.report.reasons import by_reason
from orchestrator.results.contract import CellRecord


@dataclass(frozen=True)
class Footnote:
    """A note; ``text`` may have several lines. Without ``mark`` it concerns every number of the table.

    ``reason`` is the end of the text that may be said of cells in other tables as well; nothing where there is none.
    """

    mark: int | None
    text: str
    failure: bool = False
    reason: str = ""


class Footnotes:
    """The notes of a table's cells, numbered in the cells' order; the same sentence is printed once.

    ``name`` gives a cell's name in the table, ``remark`` the table's own note on one.
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
            own = remark(cell)
            for sentence in [*([own] if own else []), *cell.notes]:
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
                names = listed([name(one) for one in alike])
                self._add(alike, f"{names} {cell.status}{count}: ", cell.reason or "", failure=True)
            for sentence in [sentence for sentence, group in concerned.items() if group[0] is cell]:
                group = concerned[sentence]
                if not len(group) >= len(valid) > 1:
                    self._add(group, f"{listed([name(one) for one in group])}: ", sentence, failure=False)

    def all(self) -> Sequence[Footnote]:
        """Every note: those that concern the whole table first."""
        return self._notes

    def marks(self, cell: CellRecord) -> str:
        """The marks of a cell's notes, with a blank before each: `` [1] [2]``, or nothing."""
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
