# SPDX-License-Identifier: GPL-2.0-only
"""A claim and its figures, as they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.report.claims import Assessment, Outcome, Verdict
from orchestrator.report.figures import BELOW_ZERO
from orchestrator.report.grid import Grid, Row

_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "yellow", Verdict.UNKNOWN: "dim"}


@dataclass(frozen=True)
class Statement:
    """A claim with its verdict, its figures (None: there are none) and remarks on them."""

    verdict: Verdict
    sentence: str
    grid: Grid | None
    remarks: Sequence[str]

    @property
    def style(self) -> str:
        """The verdict's rich style."""
        return _STYLES[self.verdict]


def statements(assessment: Assessment) -> list[Statement]:
    """Return the assessment's claims as they are printed, in the document's order."""
    return [
        Statement(outcome.verdict, outcome.claim.sentence, _grid(outcome), _remarks(outcome))
        for outcome in assessment.outcomes
    ]


def _grid(outcome: Outcome) -> Grid | None:
    if not outcome.columns:
        return None
    rows = []
    for index, first in enumerate(outcome.columns[0].measured):
        rows.append(Row(first.label, [column.measured[index].text for column in outcome.columns]))
        published = [column.published[index] for column in outcome.columns]
        if any(one.text != "-" for one in published):
            rows.append(Row("  published", [one.text for one in published]))
    return Grid([column.name for column in outcome.columns], [rows])


def _remarks(outcome: Outcome) -> list[str]:
    if not outcome.columns:
        return []
    remarks = [outcome.claim.why[outcome.clock]] if outcome.verdict is Verdict.FAILS else []
    if outcome.undecided:
        remarks.append(f"Not measured, or not decided: {', '.join(outcome.undecided)}.")
    if any(BELOW_ZERO in (one.text for one in (*column.measured, *column.published)) for column in outcome.columns):
        remarks.append(f"{BELOW_ZERO}: the compared overhead is below zero there.")
    return remarks
