# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of benchmark that a report knows. A new kind's report is added here, and nowhere else."""

from __future__ import annotations

from orchestrator.benchmarks.calls.report.kind_report import CallsReport
from orchestrator.benchmarks.markers.report.kind_report import MarkersReport
from orchestrator.benchmarks.scaling.report.kind_report import ScalingReport
from orchestrator.benchmarks.system.report.kind_report import SystemReport
from orchestrator.report.kind import ReportRegistry

REPORTS = ReportRegistry((CallsReport(), MarkersReport(), ScalingReport(), SystemReport()))
