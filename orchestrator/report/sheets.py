# SPDX-License-Identifier: GPL-2.0-only
"""The tables that a run is printed as."""

from __future__ import annotations

from orchestrator.report.kind import ReportRegistry
from orchestrator.report.panels import groups
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import RunRecord


def sheets(run: RunRecord, registry: ReportRegistry) -> list[Sheet]:
    """Return the run's tables in its order, each in the layout of its kind of benchmark."""
    return [kind.sheet(group) for kind, group in groups(run, registry)]
