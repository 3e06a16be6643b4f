# SPDX-License-Identifier: GPL-2.0-only
"""Thousands of kprobes, and the model of their cache, as curves over the number of probes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.benchmarks.scaling.report.growth_rows import Mass
from orchestrator.benchmarks.scaling.report.layout import PER_SECOND
from orchestrator.benchmarks.scaling.report.model_layout import ACCESS
from orchestrator.benchmarks.scaling.report.model_layout import BENCHMARK as MODEL
from orchestrator.benchmarks.scaling.rows import mass_benchmark
from orchestrator.report.curves import Curve, CurveChart, CurvePane
from orchestrator.report.panels import Panel
from orchestrator.report.wording import processors

_SECONDS = "seconds of the guest's time"


def mass_charts(group: Sequence[Panel]) -> dict[str, CurveChart]:
    """Return the curves of panels that are printed together, by the name of their file; none without two sizes."""
    mass, first = Mass.of(group), group[0].first
    subtitle = f"measured on {first.cpu}, {processors(first)}, instructions; a second is 10^9 of them"
    charts = _model(mass, subtitle) if first.benchmark == MODEL else _kernels(mass, subtitle)
    return {name: chart for name, chart in charts.items() if any(pane.curves for pane in chart.panes)}


def _kernels(mass: Mass, subtitle: str) -> dict[str, CurveChart]:
    benchmark = mass.cells[0].benchmark
    rows = mass_benchmark(benchmark)
    assert rows is not None
    charts = {
        f"{benchmark}-{name}": CurveChart(
            f"{row.title.capitalize()} so many kprobes",
            subtitle,
            [
                CurvePane("kprobes", _SECONDS, _totals(mass, name), logarithmic=True),
                CurvePane(f"kprobes, of {mass.sizes[-1]} registered", _SECONDS, _steps(mass, name)),
            ],
        )
        for name, row in rows.rows.items()
        if row.curve
    }
    charts[f"{benchmark}-hit"] = CurveChart(
        "What a hit costs among so many kprobes",
        subtitle,
        [
            CurvePane("kprobes", f"instructions, {title}", _each(mass, name))
            for name, title in (("hit", "later hits"), ("hit-first", "the first hit"))
        ],
    )
    return charts


def _model(mass: Mass, subtitle: str) -> dict[str, CurveChart]:
    rows = mass_benchmark(MODEL)
    assert rows is not None
    (kernel, *_) = mass.kernels
    panes = [
        CurvePane(
            "addresses",
            f"instructions a lookup: {title.lower()}",
            _drawable(
                Curve(row.title, _overheads(mass, kernel, name)) for name, row in rows.rows.items() if row.hot == hot
            ),
            logarithmic=True,
        )
        for hot, title in ACCESS.items()
    ]
    return {"kpcache-model": CurveChart("A lookup in the model of the kprobes' hash", subtitle, panes)}


def _totals(mass: Mass, row: str) -> list[Curve]:
    return _drawable(
        Curve(kernel, [(x, y / PER_SECOND) for x, y in mass.totals(kernel, row)]) for kernel in mass.kernels
    )


def _steps(mass: Mass, row: str) -> list[Curve]:
    return _drawable(
        Curve(kernel, [(x, y / PER_SECOND) for x, y in mass.steps(kernel, row, mass.sizes[-1])])
        for kernel in mass.kernels
    )


def _each(mass: Mass, row: str) -> list[Curve]:
    return _drawable(Curve(kernel, _overheads(mass, kernel, row)) for kernel in mass.kernels)


def _overheads(mass: Mass, kernel: str, row: str) -> list[tuple[float, float]]:
    cells = [(size, mass.cell(kernel, row, size)) for size in mass.sizes]
    return [(float(size), cell.overhead) for size, cell in cells if cell and cell.overhead is not None]


def _drawable(curves: Iterable[Curve]) -> list[Curve]:
    return [curve for curve in curves if len(curve.points) > 1]
