# SPDX-License-Identifier: GPL-2.0-only
"""What the formats of a run print."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.report.claims import ClaimsLayout, decided_claims
from orchestrator.report.table_report import ReportRegistry
from orchestrator.results.runs import Run


@dataclass(frozen=True)
class RunView:
    """A run to print, with what lays out its tables and claims."""

    run: Run
    registry: ReportRegistry
    claims: ClaimsLayout = decided_claims
