# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as one page: chart, changed cells with their tests and budgets, differences in provenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from orchestrator.comparison.comparison import (
    BudgetedFigure,
    CellChange,
    Change,
    ComparedRuns,
    Comparison,
    next_run,
)
from orchestrator.comparison.comparison_forms import ComparisonView
from orchestrator.comparison.comparison_sheet import (
    SYMBOLS_IN_FULL,
    CellNames,
    budget_figure,
    common_parts,
    difference_figures,
    experiments,
    provenance_sentences,
    remarks,
    runs_sentence,
    summary,
    value_or_status,
)
from orchestrator.comparison.verdicts import Difference
from orchestrator.plain_text import cut
from orchestrator.profile.printed.profile_sheets import difference_sheet
from orchestrator.program import PROGRAM, command
from orchestrator.report.chart import IntervalChart, IntervalRow, Tone
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import figure
from orchestrator.report.grid import Grid
from orchestrator.report.html.frame import COMPARISON_PAGE, NavigationLink, Page, render
from orchestrator.report.html.pictures import NOT_DRAWN, can_draw, chart_picture
from orchestrator.report.output import Output
from orchestrator.report.sheet import Sheet
from orchestrator.results.cell_filters import only
from orchestrator.results.run_files import repeat_command


def _test_columns(unit: str) -> Columns[tuple[Difference, BudgetedFigure | None]]:
    """Columns of a figure of both runs: its difference, the tests of it, and its budget, if it has one."""

    def of_difference(place: int) -> Callable[[tuple[Difference, BudgetedFigure | None]], str]:
        return lambda tested: difference_figures(tested[0], unit)[place]

    def superiority(tested: tuple[Difference, BudgetedFigure | None]) -> str:
        return "" if tested[0].superiority is None else f"{tested[0].superiority:.2f}"

    def p(tested: tuple[Difference, BudgetedFigure | None]) -> str:
        return "" if tested[0].p is None else f"{tested[0].p:.2g}"

    def budget(tested: tuple[Difference, BudgetedFigure | None]) -> str:
        return "" if tested[1] is None else "exceeded" if tested[1].is_exceeded else "within"

    return Columns(
        [
            Column("before", lambda tested: figure(tested[0].before, unit)),
            Column("after", lambda tested: figure(tested[0].after, unit)),
            Column("change", of_difference(0)),
            Column("", of_difference(1), optional=True),
            Column("95 %", of_difference(2), optional=True),
            Column("superiority", superiority, optional=True),
            Column("p", p, optional=True),
            Column("allowed", lambda tested: "" if tested[1] is None else str(tested[1].budget), optional=True),
            Column("budget", budget, optional=True),
        ]
    )


_UNCHANGED: Columns[CellChange] = Columns(
    [
        Column("value", lambda change: value_or_status(change.pair.first)),
        Column("unit", lambda change: change.pair.first.unit),
        Column("remark", attrgetter("reason")),
    ]
)


@dataclass(frozen=True)
class ChangePart:
    """A pair of cells on a page; ``name`` is its short name."""

    change: CellChange
    anchor: str
    name: str
    symbols: Sheet | None
    commands: Mapping[str, str]
    """Commands by purpose."""

    @property
    def grid(self) -> Grid | None:
        """Value and overhead with their differences, tests and budgets; None without numbers."""
        columns = _test_columns(self.change.pair.first.unit)
        budgets: dict[str, BudgetedFigure] = {budgeted.figure: budgeted for budgeted in reversed(self.change.budgeted)}
        rows = [
            columns.row(name, (difference, budgets.get(name)))
            for name, difference in (("value", self.change.value), ("overhead", self.change.overhead))
            if difference is not None
        ]
        return columns.grid(rows) if rows else None


def _commands(compared: ComparedRuns, change: CellChange) -> Iterator[tuple[str, str]]:
    before, after = change.pair.before, change.pair.after
    if before is not None and after is not None:
        names = [f"{run.record.run}:{cell.id}" for run, cell in ((compared.before, before), (compared.after, after))]
        if before.profile is not None and after.profile is not None:
            yield "List all symbols that differ", command("profile", *names, "--limit", "0")
    if compared.again:
        yield "Repeat the measurement", command(*compared.again, *only([change.pair.first]))
        return
    for which, run, cell in (("before", compared.before, before), ("after", compared.after, after)):
        again = None if cell is None else repeat_command(run.directory, cell)
        if again is not None:
            yield f"Repeat the measurement {which}", again


MOST_ROWS = 30
"""The most cells of a chart."""


_LONGEST = 60


_TONES: Mapping[Change, Tone] = {"regressed": "worse", "improved": "better"}


def comparison_chart(comparison: Comparison) -> IntervalChart | None:
    """The chart of the changed cells; None if none of them has two numbers."""
    names = CellNames(comparison)
    rows = []
    for change in comparison.changed:
        difference = change.value
        if difference is None or difference.relative is None:
            continue
        low, high = (100 * end / difference.before for end in difference.interval or (0.0, 0.0))
        bounds = None if low == high else (low, high)
        label, (_, percent, _) = cut(names.of(change), _LONGEST), difference_figures(difference, change.pair.first.unit)
        rows.append(IntervalRow(label, 100 * difference.relative, percent, bounds, _TONES.get(change.change, "open")))
    if not rows:
        return None
    scatter = ", with its 95 % interval" if any(row.bounds for row in rows) else ""
    more = f"; {len(rows) - MOST_ROWS} more in the table" if len(rows) > MOST_ROWS else ""
    return IntervalChart(
        title="Changed cells",
        subtitle=f"change in percent of the value before{scatter}{more}",
        across="percent",
        rows=rows[:MOST_ROWS],
    )


def comparison_page(compared: ComparedRuns) -> str:
    """The comparison as a page, without missing profiles."""
    comparison = compared.comparison
    before, after = compared.before.record, compared.after.record
    names = CellNames(comparison)
    symbols = compared.symbols(comparison.changed)
    changes = []
    for place, change in enumerate(comparison.changed, 1):
        symbol = symbols.get(change.pair.title)
        sheet = None if symbol is None else difference_sheet(symbol, SYMBOLS_IN_FULL)
        changes.append(
            ChangePart(change, f"change-{place}", names.of(change), sheet, dict(_commands(compared, change)))
        )
    unchanged = [_UNCHANGED.row(names.of(change), change) for change in comparison.unchanged]
    chart = comparison_chart(comparison)
    drawable = can_draw()
    there = {"Changes": changes, "Unchanged": unchanged, "Runs": True}
    return render(
        "comparison.html.j2",
        f"{experiments(compared)}: comparison",
        [NavigationLink(f"#{name.lower()}", name) for name, part in there.items() if part],
        verdict="fails" if not compared.passes else "unknown" if "undecided" in comparison.counts else "holds",
        summary=summary(compared),
        facts=[*runs_sentence(compared), *common_parts(compared)],
        pictures=[chart_picture(chart, "chart-1")] if chart is not None and drawable else [],
        changes=changes,
        value_or_status=value_or_status,
        figures=difference_figures,
        budget=budget_figure,
        any_scatters=any(difference_figures(part.change.value, "")[2] for part in changes),
        unchanged=_UNCHANGED.grid(unchanged) if unchanged else None,
        provenance=provenance_sentences(compared),
        remarks=[*remarks(compared), *([NOT_DRAWN] if chart is not None and not drawable else [])],
        next=next_run(compared),
        runs={"Before and after": after} if before.run == after.run else {"Before": before, "After": after},
        program=PROGRAM,
    )


def write_html(view: ComparisonView, output: Output) -> None:
    """Write a page."""
    compared = view.compared
    output.page(lambda _: Page(comparison_page(compared)), compared.after.directory / COMPARISON_PAGE)
