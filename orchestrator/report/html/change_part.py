# SPDX-License-Identifier: GPL-2.0-only
"""What a page says of a cell that changed: figures, budgets, symbols, and the commands that go on from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.program import command
from orchestrator.report.comparison_figures import budget_figure, difference_figures, side
from orchestrator.report.figures import NOTHING, figure
from orchestrator.report.grid import Grid, Row
from orchestrator.report.html.cell_part import repeat_command
from orchestrator.report.profile_sheets import difference_sheet
from orchestrator.report.sheet import Sheet
from orchestrator.results.compared_runs import ComparedRuns
from orchestrator.results.comparison import CellChange, HeldFigure
from orchestrator.results.contract import CellRecord
from orchestrator.results.profile_difference import ProfileDifference
from orchestrator.results.verdicts import Difference

_SYMBOLS = 20
_HEADINGS = ("before", "after", "change", "", "95 %", "superiority", "p", "allowed", "budget")
_ALWAYS = 3
"""The first columns, which are there even without a figure."""


@dataclass(frozen=True)
class Command:
    """A command, and what it is for."""

    purpose: str
    text: str


@dataclass(frozen=True)
class ChangePart:
    """A pair of cells with what the page adds; ``name`` is what it is called among the others."""

    change: CellChange
    anchor: str
    name: str
    symbols: Sheet | None
    commands: Sequence[Command]

    @property
    def before(self) -> str:
        """The value before, or the cell's state."""
        return side(self.change.pair.before)

    @property
    def after(self) -> str:
        """The value after, or the cell's state."""
        return side(self.change.pair.after)

    @property
    def figures(self) -> tuple[str, str, str]:
        """The change of the value: in its unit, in percent, and its interval."""
        return difference_figures(self.change.value, self.change.pair.first.unit)

    @property
    def overhead(self) -> str:
        """The change of the overhead in its unit."""
        return difference_figures(self.change.overhead, self.change.pair.first.unit)[0]

    @property
    def budget(self) -> str:
        """What the cell may grow by, and whether it did by more."""
        return budget_figure(self.change)

    @property
    def grid(self) -> Grid | None:
        """Value and overhead, each with its difference, its test and its budget; None without numbers."""
        unit = self.change.pair.first.unit
        found = {"value": self.change.value, "overhead": self.change.overhead}
        rows = [
            Row(name, _figures(one, unit, next((held for held in self.change.held if held.figure == name), None)))
            for name, one in found.items()
            if one is not None
        ]
        if not rows:
            return None
        used = [place for place in range(len(_HEADINGS)) if place < _ALWAYS or any(row.cells[place] for row in rows)]
        narrowed = [Row(row.label, [row.cells[place] for place in used]) for row in rows]
        return Grid([_HEADINGS[place] for place in used], [narrowed])


def change_part(
    compared: ComparedRuns, change: CellChange, place: int, name: str, symbols: ProfileDifference | None
) -> ChangePart:
    """The part of the ``place``-th change, from 1."""
    sheet = None if symbols is None else difference_sheet(symbols, _SYMBOLS)
    return ChangePart(change, f"change-{place}", name, sheet, list(_commands(compared, change)))


def _figures(found: Difference, unit: str, held: HeldFigure | None) -> Sequence[str]:
    sides = [NOTHING if one is None else figure(one, unit) for one in (found.before, found.after)]
    superiority = "" if found.superiority is None else f"{found.superiority:.2f}"
    p = "" if found.p is None else f"{found.p:.2g}"
    allowed = "" if held is None else str(held.allowance)
    verdict = "" if held is None else "beyond" if held.is_beyond else "within"
    return [*sides, *difference_figures(found, unit), superiority, p, allowed, verdict]


def _commands(compared: ComparedRuns, change: CellChange) -> Iterator[Command]:
    before, after = change.pair.before, change.pair.after
    if before is not None and after is not None:
        names = [f"{run.record.run}:{cell.id}" for run, cell in ((compared.before, before), (compared.after, after))]
        if before.profile is not None and after.profile is not None:
            yield Command("Every symbol that differs", command("diff", *names, "--limit", "0"))
    if compared.again:
        only = ["--only", f"id={change.pair.first.id.replace(',', '?')}"]
        yield Command("Measure it again", command(*compared.again, *only))
        return
    for which, run, cell in (("before", compared.before, before), ("after", compared.after, after)):
        again = None if cell is None else repeat_command(run.directory, cell)
        if again is not None:
            yield Command(f"Measure it again as {which}", again)


def unchanged_rows(cells: Sequence[tuple[str, CellRecord, str]]) -> Grid:
    """The cells that did not change, by name, with their value and the reason that is given."""
    rows = [Row(name, [side(cell), cell.unit, reason]) for name, cell, reason in cells]
    return Grid(["value", "unit", "remark"], [rows])
