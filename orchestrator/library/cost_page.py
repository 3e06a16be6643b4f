# SPDX-License-Identifier: GPL-2.0-only
"""The page of measured costs: the table and chart of hits, then the run's page with all evidence."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from orchestrator.benchmarks.registry import reports
from orchestrator.cost.costs import Cost
from orchestrator.library.cost_writers import cost_sheets
from orchestrator.library.measured_costs import MeasuredCosts
from orchestrator.pages.run_page import ALONE, run_page
from orchestrator.report.chart import Bar, BarChart, Series
from orchestrator.report.figures import figure
from orchestrator.report.html.pictures import can_draw, chart_picture
from orchestrator.report.output import Output

FILE = "cost.html"
_LABEL = 14
"""Letters of a line below a bar."""
_MOST_BARS = 24
"""More have no room for their texts."""


def write_html(measured: MeasuredCosts, output: Output) -> None:
    """Write a page."""
    chart = hits_chart(measured)
    pictures = [chart_picture(chart, "hits")] if chart is not None and can_draw() else []
    first, *by_symbol = cost_sheets(measured)
    context = replace(ALONE, instead=[(first, pictures), *((sheet, ()) for sheet in by_symbol)])
    output.page(lambda folder: run_page(measured.run, reports(), folder, context), measured.run.directory / FILE)


def hits_chart(measured: MeasuredCosts) -> BarChart | None:
    """Bars of a hit of each program, of a colour for each kernel; None for a single bar, or too many."""
    titles = list(dict.fromkeys(cost.subject.title for cost in measured.costs))
    kernels = list(dict.fromkeys(cost.cell.kernel for cost in measured.costs))
    by_place = {(cost.subject.title, cost.cell.kernel): cost for cost in measured.costs}
    if not 1 < len(titles) * len(kernels) <= _MOST_BARS or len(by_place) != len(measured.costs):
        return None
    first = measured.costs[0].cell
    on_kernel = f", {first.kernel}" if len(kernels) == 1 else ""
    return BarChart(
        title="A hit of each program",
        subtitle=f"instructions that a hit adds; counted on {first.cpu}{on_kernel}",
        labels=["\n".join(textwrap.wrap(title, _LABEL)) for title in titles],
        panes=[
            (
                "a hit, instructions",
                [
                    Series(
                        kernel if len(kernels) > 1 else "", [_bar(by_place.get((title, kernel))) for title in titles]
                    )
                    for kernel in kernels
                ],
            )
        ],
    )


def _bar(cost: Cost | None) -> Bar:
    if cost is None:
        return Bar(None, "")
    return Bar(None, cost.cell.status) if cost.hit is None else Bar(cost.hit, figure(cost.hit, cost.cell.unit))
