# SPDX-License-Identifier: GPL-2.0-only
"""The report of many probes: a column for each kernel, the growth of costs with the number of probes, curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from orchestrator.benchmarks.scaling import scaling_parameters
from orchestrator.benchmarks.scaling.kprobes_table import kprobes_sheet
from orchestrator.benchmarks.scaling.load_table import load_sheet
from orchestrator.benchmarks.scaling.rows import LOAD_BENCHMARK, kprobe_cache, scaling_row
from orchestrator.benchmarks.scaling.scaling_cells import (
    PER_SECOND,
    CurvePoints,
    ScalingCells,
    cost_figure,
    cost_of_one,
    place_of,
    row_of,
    row_title,
    size_of,
)
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.chart import Chart, Curve, CurveChart, CurvePane
from orchestrator.report.figures import unit_name
from orchestrator.report.highlights import Highlight, Rank
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import CellGroup, PlainReport, TableReport, processors
from orchestrator.results import parameters
from orchestrator.results.statistics import growth

MOST_TELLING = ("hit", "enable", "calls")
"""The rows for findings, the most important first; without one of them, all rows are compared."""


class ScalingReport(TableReport):
    """A table for each machine and benchmark, with all its numbers of probes."""

    KEY_PARAMETERS = (scaling_parameters.PROBES, parameters.IMAGE, parameters.CHANNEL)

    def handles(self, benchmark: str) -> bool:
        return benchmark in kprobe_cache().benchmarks

    def same_table(self, group: CellGroup, groups: Sequence[CellGroup]) -> bool:
        """Whether no cell of ``groups`` has the place (kernel, row, number of probes) of a cell of the group."""
        first, other_cell = group.first, groups[0].first
        names = ("benchmark", "cpu", "smp", "clock")
        are_alike = all(getattr(first, name) == getattr(other_cell, name) for name in names)
        taken = {place_of(cell) for other_group in groups for cell in other_group.cells}
        has_seed = parameters.SEED.of(first) == parameters.SEED.of(other_cell)
        return are_alike and has_seed and not any(place_of(cell) in taken for cell in group.cells)

    def sheet(self, groups: Sequence[CellGroup]) -> Sheet:
        """Return the table of ``groups``; a plain one if no row is in the catalogue, as with a baseline alone."""
        table = ScalingCells.of(groups)
        if not any(scaling_row(cell.probe) for cell in table.cells):
            return PlainReport().sheet([CellGroup(table.cells, groups[0].kernel)])
        return load_sheet(table) if groups[0].first.benchmark == LOAD_BENCHMARK else kprobes_sheet(table)

    def findings(self, groups: Sequence[CellGroup]) -> Iterator[Highlight]:
        table = ScalingCells.of(groups)
        measured = [cell for cell in table.cells if cell.value is not None and cell.probe != BASELINE]
        size = max((size_of(cell) for cell in measured), default=0)
        cells = [cell for cell in measured if size_of(cell) == size]
        row = next((telling for telling in MOST_TELLING if any(row_of(cell) == telling for cell in cells)), None)
        cells = [cell for cell in cells if row is None or row_of(cell) == row]
        if not cells:
            return
        dearest, cheapest = max(cells, key=cost_of_one), min(cells, key=cost_of_one)
        title = row_title(dearest).capitalize()
        # Cells of one row differ in their kernel, others in their row.
        first, last = (
            f"{row_title(cell).capitalize() if row is None else f'on {cell.kernel}'}, {cost_figure(cell)} "
            f"{unit_name(cell.unit)}"
            for cell in (dearest, cheapest)
        )
        each = first if cheapest is dearest else f"most {first}; least {last}"
        place = groups[0].place(None)
        what = f"{'Largest overhead' if row is None else title}{f', {place}' if place else ''}"
        base = (dearest.value or 0.0) - (dearest.overhead or 0.0)
        weight = cost_of_one(dearest) / base if dearest.overhead and base > 0 else 0.0
        yield Highlight(Rank.LARGEST, f"{what}, {size} probes: {each}.", weight)
        fit = growth(table.overheads(dearest.kernel, row_of(dearest)))
        if fit is not None:
            power = f"grows like the number of probes to the power of {fit.exponent:.3f}"
            yield Highlight(Rank.OTHER, f"{title}: its cost {power} on {dearest.kernel}.")

    def charts(self, groups: Sequence[CellGroup]) -> Mapping[str, Chart]:
        first, table = groups[0].first, ScalingCells.of(groups)
        if first.benchmark == LOAD_BENCHMARK:
            return {}

        def curves(points: Callable[[str], CurvePoints], scale: float = 1) -> list[Curve]:
            pairs = {kernel: [(at, cost / scale) for at, cost in points(kernel)] for kernel in table.kernels}
            return [Curve(kernel, scaled) for kernel, scaled in pairs.items() if len(scaled) > 1]

        most, seconds = table.sizes[-1], "seconds of the guest's time"
        panes: dict[str, tuple[str, list[CurvePane]]] = {}
        for name, row in kprobe_cache().benchmarks[first.benchmark].rows.items():
            if row.curve:
                totals = curves(partial(table.totals, row=name), PER_SECOND)
                steps = curves(partial(table.steps, row=name, size=most), PER_SECOND)
                panes[name] = (
                    f"{row.title.capitalize()} kprobes, by their number",
                    [
                        CurvePane("kprobes", seconds, totals, logarithmic=True),
                        CurvePane(f"kprobes, of {most} registered", seconds, steps),
                    ],
                )
        hits = [
            CurvePane("kprobes", f"instructions, {title}", curves(partial(table.overheads, row=name)))
            for name, title in (("hit", "later hits"), ("hit-first", "the first hit"))
        ]
        panes["hit"] = "Cost of a hit, by the number of kprobes", hits
        subtitle = f"measured on {first.cpu}, {processors(first)}, instructions; a second is 10^9 of them"
        return {
            f"{first.benchmark}-{name}": CurveChart(title, subtitle, drawn)
            for name, (title, drawn) in panes.items()
            if any(pane.curves for pane in drawn)
        }


REPORT = ScalingReport()
