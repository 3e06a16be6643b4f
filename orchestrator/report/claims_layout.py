# SPDX-License-Identifier: GPL-2.0-only
"""A claim and its figures, as they are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.catalog.claims import ClaimClock
from orchestrator.program import PROGRAM
from orchestrator.report.claims import Assessment, Column, Outcome, Verdict
from orchestrator.report.figures import BELOW_ZERO, NOTHING
from orchestrator.report.grid import Grid, Row

_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "yellow", Verdict.UNKNOWN: "dim"}

_OPTIONS: dict[ClaimClock, str] = {
    "instructions": "",
    "wall": " --set clock=wall --set benchmark.repeats=12",
    "modelled": " --profile symbols",
}
"""Options of ``run`` with which a document's experiment is measured for a clock."""


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


@dataclass(frozen=True)
class ClaimsPart:
    """The claims of one document as they are printed; ``sentences`` say what is not among the statements."""

    title: str
    statements: Sequence[Statement]
    sentences: Sequence[str]


ClaimsLayout = Callable[[Assessment, str], ClaimsPart]
"""How a document's claims are printed, judged by the run with this id."""


def all_claims(assessment: Assessment, run: str) -> ClaimsPart:
    """Every claim with its figures, whether it was decided or not."""
    del run
    return ClaimsPart(assessment.title, statements(assessment), [])


def decided_claims(assessment: Assessment, run: str) -> ClaimsPart:
    """The claims that the run decides, with the figures of those that do not hold; how to decide the others."""
    decided = [one for one in assessment.outcomes if one.verdict is not Verdict.UNKNOWN]
    return ClaimsPart(
        assessment.title,
        [Statement(one.verdict, one.claim.sentence, None, list(_contradiction(one))) for one in decided],
        list(_left_out(assessment, run)),
    )


def statements(assessment: Assessment) -> list[Statement]:
    """Return the assessment's claims as they are printed, in the document's order."""
    return [
        Statement(outcome.verdict, outcome.claim.sentence, _grid(outcome), _remarks(outcome))
        for outcome in assessment.outcomes
    ]


def _contradiction(outcome: Outcome) -> Iterator[str]:
    """The first table's figures by which a claim does not hold, the other such tables, and why."""
    if outcome.verdict is not Verdict.FAILS:
        return
    first, *others = [column for column in outcome.columns if any(one.holds is False for one in column.measured)]
    also = f"; also {', '.join(column.name for column in others)}" if others else ""
    yield f"{first.name}: {', '.join(_wrong_figures(first))}{also}. {outcome.claim.why[outcome.clock]}"


def _wrong_figures(column: Column) -> Iterator[str]:
    for measured, published in zip(column.measured, column.published, strict=True):
        if measured.holds is False:
            beside = f" (published {published.text})" if published.text != NOTHING else ""
            yield f"{measured.label} = {measured.text}{beside}"


def _left_out(assessment: Assessment, run: str) -> Iterator[str]:
    outcomes = assessment.outcomes
    unknown = [one for one in outcomes if one.verdict is Verdict.UNKNOWN]
    elsewhere = [one for one in unknown if not one.columns]
    if elsewhere:
        command = _deciding(elsewhere[0].claim.document, elsewhere[0].clock)
        yield f"{len(elsewhere)} of {len(outcomes)} claims need other tables: {command}"
    if len(unknown) > len(elsewhere):
        yield f"{len(unknown) - len(elsewhere)} of {len(outcomes)} claims are not decided by these tables' figures."
    if outcomes:
        clock = " --clock modelled" if outcomes[0].clock == "modelled" else ""
        yield f"The figures of all: {PROGRAM} report {run}{clock} --claims"


def _deciding(document: str, clock: ClaimClock) -> str:
    """The command that measures all of a document's tables for a clock."""
    return f"{PROGRAM} run configs/{document}.yaml{_OPTIONS[clock]}"


def _grid(outcome: Outcome) -> Grid | None:
    if not outcome.columns:
        return None
    rows = []
    for index, first in enumerate(outcome.columns[0].measured):
        rows.append(Row(first.label, [column.measured[index].text for column in outcome.columns]))
        published = [column.published[index] for column in outcome.columns]
        if any(one.text != NOTHING for one in published):
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
