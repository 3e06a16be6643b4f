# SPDX-License-Identifier: GPL-2.0-only
"""Thousands of kprobes, and the model of their cache, as curves over the number of probes."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.benchmarks.scaling.report.layout import PER_SECOND
from orchestrator.benchmarks.scaling.report.model_layout import ACCESS
from orchestrator.benchmarks.scaling.report.model_layout import BENCHMARK as MODEL
from orchestrator.benchmarks.scaling.report.scaling_cells import ScalingCells
from orchestrator.benchmarks.scaling.rows import scaling_benchmark
from orchestrator.report.chart import Curve, CurveChart, CurvePane
from orchestrator.report.panel import Group
from orchestrator.report.wording import processors

_SECONDS = "seconds of the guest's time"


def kernels_charts(group: Group) -> dict[str, CurveChart]:
    """Return the curves of real kprobes, by the names of their files: the totals, the steps and the hits."""
    table, subtitle = ScalingCells.of(group), _subtitle(group)
    benchmark = table.cells[0].benchmark
    rows = scaling_benchmark(benchmark)
    assert rows is not None
    charts = {
        f"{benchmark}-{name}": CurveChart(
            f"{row.title.capitalize()} kprobes, by their number",
            subtitle,
            [
                CurvePane("kprobes", _SECONDS, _totals(table, name), logarithmic=True),
                CurvePane(f"kprobes, of {table.sizes[-1]} registered", _SECONDS, _steps(table, name)),
            ],
        )
        for name, row in rows.rows.items()
        if row.curve
    }
    charts[f"{benchmark}-hit"] = CurveChart(
        "Cost of a hit, by the number of kprobes",
        subtitle,
        [
            CurvePane("kprobes", f"instructions, {title}", _each(table, name))
            for name, title in (("hit", "later hits"), ("hit-first", "the first hit"))
        ],
    )
    return charts


def model_charts(group: Group) -> dict[str, CurveChart]:
    """Return the curves of the model of the kprobes' hash, by the name of their file."""
    table, subtitle = ScalingCells.of(group), _subtitle(group)
    rows = scaling_benchmark(MODEL)
    assert rows is not None
    (kernel, *_) = table.kernels
    panes = [
        CurvePane(
            "addresses",
            f"instructions a lookup: {title.lower()}",
            _drawable(
                Curve(row.title, _overheads(table, kernel, name)) for name, row in rows.rows.items() if row.hot == hot
            ),
            logarithmic=True,
        )
        for hot, title in ACCESS.items()
    ]
    return {"kpcache-model": CurveChart("A lookup in the model of the kprobes' hash", subtitle, panes)}


def _subtitle(group: Group) -> str:
    first = group[0].first
    return f"measured on {first.cpu}, {processors(first)}, instructions; a second is 10^9 of them"


def _totals(table: ScalingCells, row: str) -> list[Curve]:
    return _drawable(
        Curve(kernel, [(x, y / PER_SECOND) for x, y in table.totals(kernel, row)]) for kernel in table.kernels
    )


def _steps(table: ScalingCells, row: str) -> list[Curve]:
    return _drawable(
        Curve(kernel, [(x, y / PER_SECOND) for x, y in table.steps(kernel, row, table.sizes[-1])])
        for kernel in table.kernels
    )


def _each(table: ScalingCells, row: str) -> list[Curve]:
    return _drawable(Curve(kernel, _overheads(table, kernel, row)) for kernel in table.kernels)


def _overheads(table: ScalingCells, kernel: str, row: str) -> list[tuple[float, float]]:
    cells = [(size, table.cell(kernel, row, size)) for size in table.sizes]
    return [(float(size), cell.overhead) for size, cell in cells if cell and cell.overhead is not None]


def _drawable(curves: Iterable[Curve]) -> list[Curve]:
    return [curve for curve in curves if len(curve.points) > 1]
