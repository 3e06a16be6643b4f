# SPDX-License-Identifier: GPL-2.0-only
"""The documents' claims, judged by a run's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.catalog.claims import Claim, ClaimClock, RatioClaim, claims
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.report.comparisons import Comparison, compare
from orchestrator.report.facts import Facts, measured_facts, modelled_facts, published_facts
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.panel import Panel
from orchestrator.report.panels import panels
from orchestrator.report.wording import INDICATION
from orchestrator.results.contract import RunRecord
from orchestrator.results.modelled import ModelledRun

_CLOCKS: dict[ClaimClock, str] = {
    "instructions": "counted in instructions",
    "wall": "by the wall clock",
    "modelled": "in modelled nanoseconds",
}


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
    clock: ClaimClock

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
    groups: dict[tuple[str, ClaimClock], list[Panel]] = {}
    for panel in panels(run, registry):
        if panel.reference is not None:
            groups.setdefault((panel.reference.document_id, panel.first.clock), []).append(panel)
    return [
        Assessment(
            _title(found, clock),
            [_outcome(claim, _judged(found, measured_facts), clock) for claim in _claims_of(document)],
        )
        for (document, clock), found in groups.items()
    ]


def assess_modelled(run: RunRecord, modelled: ModelledRun, registry: ReportRegistry) -> list[Assessment]:
    """Judge the ratios that each document claims by the modelled times of the run, within their bands."""
    times = {cell.id: cell for cell in modelled.cells if cell.overhead is not None}

    def facts(panel: Panel) -> Facts:
        return modelled_facts([times[cell.id] for cell in panel.cells if cell.id in times])

    groups: dict[str, list[Panel]] = {}
    for panel in panels(run, registry):
        if panel.reference is not None and any(cell.id in times for cell in panel.cells):
            groups.setdefault(panel.reference.document_id, []).append(panel)
    return [
        Assessment(
            _title(found, "modelled"),
            [
                _outcome(claim, _judged(found, facts), "modelled")
                for claim in _claims_of(document)
                if isinstance(claim, RatioClaim)
            ],
        )
        for document, found in groups.items()
    ]


@dataclass(frozen=True)
class _Judged:
    """A panel with what is judged of it."""

    panel: Panel
    facts: Facts


def _judged(found: Sequence[Panel], facts: Callable[[Panel], Facts]) -> list[_Judged]:
    return [_Judged(panel, facts(panel)) for panel in found]


def _claims_of(document: str) -> list[Claim]:
    return [claim for claim in claims().values() if claim.document == document]


def _title(found: Sequence[Panel], clock: ClaimClock) -> str:
    table = _reference(found[0])
    indication = f", {INDICATION}" if any(panel.emulated for panel in found) else ""
    return f"Claims of {table.document}, {_CLOCKS[clock]}{indication}"


def _outcome(claim: Claim, found: Sequence[_Judged], clock: ClaimClock) -> Outcome:
    measured = [one for one in found if _reference(one.panel).name in claim.tables]
    names = Counter(one.panel.name for one in measured)
    columns = [
        Column(
            name=_name(one.panel, names),
            table=_reference(one.panel).name,
            measured=compare(claim, one.facts),
            published=compare(claim, published_facts(_reference(one.panel))),
        )
        for one in measured
    ]
    return Outcome(claim, columns, clock)


def _name(panel: Panel, names: Counter[str]) -> str:
    # Two panels of one name differ in kernel or machine.
    return panel.name if names[panel.name] == 1 else f"{panel.name} {panel.first.cpu} {panel.kernel}"


def _reference(panel: Panel) -> ReferenceTable:
    assert panel.reference is not None
    return panel.reference
