# SPDX-License-Identifier: GPL-2.0-only
"""The claims of a document as a page has them: the decided ones first, the others folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.report.claims import Assessment, Verdict
from orchestrator.report.claims_layout import Statement, statements


@dataclass(frozen=True)
class FoldedClaims:
    """A document's claims, each with its figures."""

    title: str
    decided: Sequence[Statement]
    undecided: Sequence[Statement]


def folded_claims(assessment: Assessment) -> FoldedClaims:
    """Return the claims of one document."""
    found = statements(assessment)
    return FoldedClaims(
        assessment.title,
        [one for one in found if one.verdict is not Verdict.UNKNOWN],
        [one for one in found if one.verdict is Verdict.UNKNOWN],
    )
