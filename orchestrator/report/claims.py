# SPDX-License-Identifier: GPL-2.0-only
"""The documents' claims, judged by a run's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.catalog.claims import Claim, claims
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.report.comparisons import Comparison, compare
from orchestrator.report.facts import measured_facts, published_facts
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.panel import Panel
from orchestrator.report.panels import panels
from orchestrator.report.wording import INDICATION
from orchestrator.results.contract import Clock, RunRecord

_CLOCKS: dict[Clock, str] = {"instructions": "counted in instructions", "wall": "by the wall clock"}


class Verdict(StrEnum):
    """The outcome of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Column:
    """A claim's figures for one measured table: the rows of ``published`` are those of ``measured``."""

    name: str
    table: str
    measured: Sequence[Comparison]
    published: Sequence[Comparison]

    @property
    def decided(self) -> bool:
        """Whether every figure that is judged could be."""
        return all(one.holds is not None for one in self.measured if one.judged)


@dataclass(frozen=True)
class Outcome:
    """A claim judged by a run; ``columns`` has the measured tables only."""

    claim: Claim
    columns: Sequence[Column]
    clock: Clock

    @property
    def verdict(self) -> Verdict:
        """Holds where all figures that could be judged agree, does not hold where one does not."""
        judged = [one.holds for column in self.columns for one in column.measured if one.holds is not None]
        if not judged:
            return Verdict.UNKNOWN
        return Verdict.HOLDS if all(judged) else Verdict.FAILS

    @property
    def undecided(self) -> Sequence[str]:
        """The claim's tables that were not measured, or not all of them."""
        decided = {column.table for column in self.columns if column.decided}
        return [table for table in self.claim.tables if table not in decided]


@dataclass(frozen=True)
class Assessment:
    """Every claim of one document, judged on one clock."""

    title: str
    outcomes: Sequence[Outcome]


def assess(run: RunRecord, registry: ReportRegistry) -> list[Assessment]:
    """Judge the claims of each document that the run is compared with, on each clock the run has."""
    groups: dict[tuple[str, Clock], list[Panel]] = {}
    for panel in panels(run, registry):
        if panel.reference is not None:
            groups.setdefault((panel.reference.document_id, panel.first.clock), []).append(panel)
    return [
        Assessment(
            _title(found), [_outcome(claim, found, clock) for claim in claims().values() if claim.document == document]
        )
        for (document, clock), found in groups.items()
    ]


def _title(found: Sequence[Panel]) -> str:
    table = _reference(found[0])
    indication = f", {INDICATION}" if any(panel.emulated for panel in found) else ""
    return f"Claims of {table.document}, {_CLOCKS[found[0].first.clock]}{indication}"


def _outcome(claim: Claim, found: Sequence[Panel], clock: Clock) -> Outcome:
    measured = [panel for panel in found if _reference(panel).name in claim.tables]
    names = Counter(panel.name for panel in measured)
    columns = [
        Column(
            # Two panels of one name differ in kernel or machine.
            name=panel.name if names[panel.name] == 1 else f"{panel.name} {panel.first.cpu} {panel.kernel}",
            table=_reference(panel).name,
            measured=compare(claim, measured_facts(panel)),
            published=compare(claim, published_facts(_reference(panel))),
        )
        for panel in measured
    ]
    return Outcome(claim, columns, clock)


def _reference(panel: Panel) -> ReferenceTable:
    assert panel.reference is not None
    return panel.reference
