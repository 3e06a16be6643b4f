# SPDX-License-Identifier: GPL-2.0-only
"""A run's charts of one sort, by the names of their files."""

from __future__ import annotations

from orchestrator.benchmarks.registry import reports
from orchestrator.report.chart import BarChart, CurveChart
from orchestrator.report.table_report import charts
from orchestrator.results.contract import RunRecord


def bar_charts(record: RunRecord) -> dict[str, BarChart]:
    """Return the charts of bars."""
    return {name: chart for name, chart in charts(record, reports()).items() if isinstance(chart, BarChart)}


def curve_charts(record: RunRecord) -> dict[str, CurveChart]:
    """Return the charts of curves."""
    return {name: chart for name, chart in charts(record, reports()).items() if isinstance(chart, CurveChart)}
