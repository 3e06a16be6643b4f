# SPDX-License-Identifier: GPL-2.0-only
"""The package's kinds of benchmark, and the example's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.benchmarks import registry

if TYPE_CHECKING:
    from orchestrator.experiment.kind_registry import KindRegistry
    from orchestrator.report.table_report import ReportRegistry
    from orchestrator.run.benchmark_kind import BenchmarkKind


def kinds() -> KindRegistry[BenchmarkKind]:
    """Every kind, as a run needs it."""
    from example_kind.kind import KIND
    from orchestrator.experiment.kind_registry import KindRegistry

    return KindRegistry([*registry.kinds().loads, lambda: KIND])


def reports() -> ReportRegistry:
    """Every kind, as a report needs it."""
    from example_kind.report import REPORT
    from orchestrator.report.table_report import ReportRegistry

    return ReportRegistry([*registry.reports().kinds, REPORT])
