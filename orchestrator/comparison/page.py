# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as one page: its summary, each changed cell with what explains it, and what to run next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from orchestrator.comparison.comparison import CellChange, Change, ComparedRuns, Comparison, HeldFigure, next_run
from orchestrator.comparison.forms import (
    CellNames,
    budget_figure,
    common_parts,
    difference_figures,
    experiments,
    origin_sentences,
    remarks,
    runs_sentence,
    side,
    summary,
)
from orchestrator.comparison.verdicts import Difference
from orchestrator.plain_text import cut
from orchestrator.program import PROGRAM, command
from orchestrator.report.chart import IntervalChart, IntervalRow, Tone
from orchestrator.report.html.frame import Link, render
from orchestrator.report.html.pictures import NOT_DRAWN, can_draw, chart_picture
from orchestrator.report.html.run_page import repeat_command
from orchestrator.report.profile_sheets import difference_sheet
from orchestrator.report.sheet import NOTHING, Grid, Row, Sheet, figure, used_columns
from orchestrator.results.budgets import only

# What a page says of a cell that changed: figures, budgets, symbols, and the commands that go on from there.

_SYMBOLS = 20
_HEADINGS = ("before", "after", "change", "", "95 %", "superiority", "p", "allowed", "budget")
_ALWAYS = 3
"""The first columns, which are there even without a figure."""


@dataclass(frozen=True)
class ChangePart:
    """A pair of cells with what the page adds; ``name`` is what it is called among the others."""

    change: CellChange
    anchor: str
    name: str
    symbols: Sheet | None
    commands: Mapping[str, str]
    """By what they are for."""

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
        headings, narrowed = used_columns(_HEADINGS, rows, _ALWAYS)
        return Grid(headings, [narrowed])


def _figures(found: Difference, unit: str, held: HeldFigure | None) -> Sequence[str]:
    sides = [NOTHING if one is None else figure(one, unit) for one in (found.before, found.after)]
    superiority = "" if found.superiority is None else f"{found.superiority:.2f}"
    p = "" if found.p is None else f"{found.p:.2g}"
    allowed = "" if held is None else str(held.allowance)
    verdict = "" if held is None else "beyond" if held.is_beyond else "within"
    return [*sides, *difference_figures(found, unit), superiority, p, allowed, verdict]


def _commands(compared: ComparedRuns, change: CellChange) -> Iterator[tuple[str, str]]:
    before, after = change.pair.before, change.pair.after
    if before is not None and after is not None:
        names = [f"{run.record.run}:{cell.id}" for run, cell in ((compared.before, before), (compared.after, after))]
        if before.profile is not None and after.profile is not None:
            yield "Every symbol that differs", command("profile", *names, "--limit", "0")
    if compared.again:
        yield "Measure it again", command(*compared.again, *only([change.pair.first]))
        return
    for which, run, cell in (("before", compared.before, before), ("after", compared.after, after)):
        again = None if cell is None else repeat_command(run.directory, cell)
        if again is not None:
            yield f"Measure it again as {which}", again


# The chart of a comparison: by how many percent each cell changed, with the interval of that.

MOST_ROWS = 30
"""Cells of a chart: those that are listed first."""
_LONGEST = 60
_TONES: Mapping[Change, Tone] = {"dearer": "worse", "cheaper": "better"}


def comparison_chart(comparison: Comparison) -> IntervalChart | None:
    """Return the chart of the changed cells; None where none of them has a number on both sides."""
    names = CellNames(comparison)
    rows = [_row(one, one.value, names.of(one)) for one in comparison.changed if one.value is not None]
    drawable = [row for row in rows if row is not None]
    if not drawable:
        return None
    scatter = ", with its 95 % interval" if any(row.bounds for row in drawable) else ""
    more = f"; {len(drawable) - MOST_ROWS} more are in the table" if len(drawable) > MOST_ROWS else ""
    return IntervalChart(
        title="Changed cells",
        subtitle=f"change in percent of what was before{scatter}{more}",
        across="percent",
        rows=drawable[:MOST_ROWS],
    )


def _row(one: CellChange, found: Difference, name: str) -> IntervalRow | None:
    if found.relative is None:
        return None
    bounds = None
    if found.interval is not None and found.interval[0] != found.interval[1]:
        low, high = (100 * end / found.before for end in found.interval)
        bounds = low, high
    _, percent, _ = difference_figures(found, one.pair.first.unit)
    return IntervalRow(cut(name, _LONGEST), 100 * found.relative, percent, bounds, _TONES.get(one.change, "open"))


# A comparison as one page: what it comes to, each changed cell with what explains it, and what to run next.


def comparison_page(compared: ComparedRuns) -> str:
    """Return the page. Profiles that are not there are left out."""
    comparison = compared.comparison
    before, after = compared.before.record, compared.after.record
    names = CellNames(comparison)
    symbols = compared.symbols(comparison.changed)
    changes = []
    for place, one in enumerate(comparison.changed, 1):
        found = symbols.get(one.pair.title)
        sheet = None if found is None else difference_sheet(found, _SYMBOLS)
        changes.append(ChangePart(one, f"change-{place}", names.of(one), sheet, dict(_commands(compared, one))))
    unchanged = [
        Row(names.of(one), [side(one.pair.first), one.pair.first.unit, one.reason]) for one in comparison.unchanged
    ]
    pictures, not_drawn = _pictures(compared)
    there = {"Changes": changes, "Unchanged": unchanged, "Runs": True}
    return render(
        "comparison.html.j2",
        f"{experiments(compared)}: comparison",
        [Link(f"#{name.lower()}", name) for name, part in there.items() if part],
        verdict="fails" if comparison.beyond else "unknown" if "undecided" in comparison.counts else "holds",
        summary=summary(compared),
        facts=[*runs_sentence(compared), *common_parts(compared)],
        pictures=pictures,
        changes=changes,
        side=side,
        figures=difference_figures,
        budget=budget_figure,
        any_scatters=any(difference_figures(one.change.value, "")[2] for one in changes),
        unchanged=Grid(["value", "unit", "remark"], [unchanged]) if unchanged else None,
        origin=list(origin_sentences(compared)),
        remarks=[*remarks(compared), *not_drawn],
        next=next_run(compared),
        runs={"Before and after": after} if before.run == after.run else {"Before": before, "After": after},
        program=PROGRAM,
    )


def _pictures(compared: ComparedRuns) -> tuple[Sequence[Markup], Sequence[str]]:
    """The chart of the changed cells, or the sentence on why it is not there."""
    chart = comparison_chart(compared.comparison)
    if chart is None:
        return [], []
    return ([chart_picture(chart, "chart-1")], []) if can_draw() else ([], [NOT_DRAWN])
