# SPDX-License-Identifier: GPL-2.0-only
"""Tables that are of no run's layout, as a page: modelled times, comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.report.claims import Assessment
from orchestrator.report.html.folded_claims import folded_claims
from orchestrator.report.html.frame import Link, render
from orchestrator.report.sheet import Sheet


def sheets_page(
    title: str, sheets: Sequence[Sheet], assessments: Sequence[Assessment] = (), summary: Sequence[str] = ()
) -> str:
    """Return the page of these tables and of the outcome of claims, below the sentences of ``summary``."""
    links = [Link("#tables", "Tables"), *([Link("#claims", "Claims")] if assessments else [])]
    claims = [folded_claims(one) for one in assessments]
    return render("sheets.html.j2", title, links, findings=summary, sheets=sheets, claims=claims)
