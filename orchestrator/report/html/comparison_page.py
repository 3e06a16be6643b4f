# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as one page: what it comes to, each changed cell with what explains it, and what to run next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from orchestrator.program import PROGRAM
from orchestrator.report.comparison_chart import comparison_chart
from orchestrator.report.comparison_figures import (
    CellNames,
    command,
    common_parts,
    experiments,
    origin_sentences,
    remarks,
    runs_sentence,
    summary,
)
from orchestrator.report.html.change_part import ChangePart, change_part, unchanged_rows
from orchestrator.report.html.chart_picture import NOT_DRAWN, can_draw, chart_picture
from orchestrator.report.html.frame import Link, render
from orchestrator.results.compared_runs import ComparedRuns
from orchestrator.results.contract import RunRecord


def comparison_page(compared: ComparedRuns) -> str:
    """Return the page. Profiles that are not there are left out."""
    comparison = compared.comparison
    names = CellNames(comparison)
    symbols = compared.symbols(comparison.changed)
    changes = [
        change_part(compared, one, place, names.of(one), symbols.get(one.pair.title))
        for place, one in enumerate(comparison.changed, 1)
    ]
    unchanged = [(names.of(one), one.pair.first, one.reason) for one in comparison.unchanged]
    pictures, not_drawn = _pictures(compared)
    origin = list(origin_sentences(compared))
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
        any_scatters=any(one.figures[2] for one in changes),
        choices=_choices(changes),
        unchanged=unchanged_rows(unchanged) if unchanged else None,
        origin=origin,
        remarks=[*remarks(compared), *not_drawn],
        next=command(compared),
        runs=_runs(compared),
        program=PROGRAM,
    )


def _runs(compared: ComparedRuns) -> Mapping[str, RunRecord]:
    """The runs by what they are here; one that was compared with itself is there once."""
    before, after = compared.before.record, compared.after.record
    return {"Before and after": after} if before.run == after.run else {"Before": before, "After": after}


def _pictures(compared: ComparedRuns) -> tuple[Sequence[Markup], Sequence[str]]:
    """The chart of the changed cells, or the sentence on why it is not there."""
    chart = comparison_chart(compared.comparison)
    if chart is None:
        return [], []
    return ([chart_picture(chart, "chart-1")], []) if can_draw() else ([], [NOT_DRAWN])


def _choices(changes: Sequence[ChangePart]) -> Mapping[str, Sequence[str]]:
    """What the list of changes can be filtered by, with the values that occur."""
    cells = [one.change.pair.first for one in changes]
    return {
        "change": list(dict.fromkeys(one.change.change for one in changes)),
        "probe": sorted({cell.probe for cell in cells}),
        "kernel": sorted({cell.kernel for cell in cells}),
    }
