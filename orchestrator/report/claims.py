# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts on the documents' claims by a run's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise, product
from math import inf, isclose
from operator import attrgetter
from typing import TypeVar

from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.catalog.published_tables import (
    ChangeClaim,
    Claim,
    ClaimClock,
    MechanismClaim,
    OrderClaim,
    RatioClaim,
    ReferenceTable,
    SizeClaim,
    TrapsClaim,
    claims,
)
from orchestrator.program import PROGRAM
from orchestrator.report.columns import Columns, columns_of
from orchestrator.report.figures import BELOW_ZERO, NOTHING, UNDECIDED, number, ratio_figure
from orchestrator.report.grid import Grid
from orchestrator.report.proofs import traps_per_hit
from orchestrator.report.table_report import FIT, INDICATION, CellGroup, ReportRegistry, cell_groups
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.modelled import ModelledCell, ModelledRun
from orchestrator.results.parameters import PROBE_BYTES_EXTRA, PROBE_BYTES_PLAIN

_Fact = TypeVar("_Fact")

Ranges = Mapping[str, tuple[float, float]]
"""How much more a modelled time is at both ends of the range of each of its causes."""


@dataclass(frozen=True)
class ClaimInputs:
    """Figures by probe: overheads, breakpoint traps per hit, sizes relative to a plain probe, extra bytes, mechanisms.

    ``undecided`` are probes whose overhead is hidden by scatter; to the published ones of ``fitted`` the costs were
    fitted; ``ranges`` are those of modelled overheads, by their
    common causes: see ModelEvidence.
    """

    overheads: Mapping[str, float]
    traps: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    extra_bytes: Mapping[str, int] = field(default_factory=dict)
    mechanisms: Mapping[str, str] = field(default_factory=dict)
    undecided: frozenset[str] = frozenset()
    fitted: frozenset[str] = frozenset()
    ranges: Mapping[str, Ranges] = field(default_factory=dict)


def measured_inputs(group: CellGroup) -> ClaimInputs:
    """The figures of the group's valid cells."""
    cells = {cell.probe: cell for cell in group.cells if cell.status == "ok" and cell.probe != BASELINE}
    return ClaimInputs(
        overheads=_known(cells, lambda cell: cell.overhead),
        traps=_known(cells, traps_per_hit),
        sizes={
            probe: (plain + extra) / plain
            for probe, cell in cells.items()
            if (plain := PROBE_BYTES_PLAIN.of(cell)) and (extra := PROBE_BYTES_EXTRA.of(cell)) is not None
        },
        extra_bytes=_known(cells, PROBE_BYTES_EXTRA.of),
        mechanisms=_known(cells, lambda cell: cell.evidence.mechanism if cell.evidence else None),
        undecided=frozenset(probe for probe, cell in cells.items() if cell.verdict == "none"),
    )


def modelled_inputs(cells: Sequence[ModelledCell]) -> ClaimInputs:
    """The modelled times of cells, in nanoseconds."""
    return ClaimInputs(
        overheads={cell.probe: cell.overhead for cell in cells if cell.overhead is not None},
        fitted=frozenset(cell.probe for cell in cells if cell.is_fit),
        ranges={cell.probe: cell.evidence.ranges for cell in cells if cell.evidence is not None},
    )


def published_inputs(table: ReferenceTable) -> ClaimInputs:
    """The document's figures."""
    names = {column: column for column in table.columns} | {
        kind.column or kind.name: kind.name for kind in probes().values()
    }
    return ClaimInputs(
        overheads={names[column]: table.overhead(column) for column in table.columns},
        traps={names[column]: count for column, count in table.int3_per_hit.items()},
        sizes={names[column]: ratio for column, ratio in table.size_ratio.items()},
        extra_bytes={names[column]: count for column, count in table.extra_bytes.items()},
    )


def _known(cells: Mapping[str, CellRecord], fact: Callable[[CellRecord], _Fact | None]) -> dict[str, _Fact]:
    return {probe: value for probe, cell in cells.items() if (value := fact(cell)) is not None}


@dataclass(frozen=True)
class ClaimFigure:
    """One figure of a claim: its label, its printed text, and whether the claim holds for it.

    ``holds`` is None for a missing figure; a figure that is only printed is not ``judged``. ``is_fit`` where the prices
    were fitted to both published figures.
    """

    label: str
    text: str
    holds: bool | None
    judged: bool = True
    is_fit: bool = False


def compare(claim: Claim, facts: ClaimInputs, later: ClaimInputs | None = None) -> list[ClaimFigure]:
    """The claim's figures, with the same rows for any inputs; a change is to the inputs of a ``later`` table."""
    match claim:
        case RatioClaim():
            bounds = (claim.at_least, claim.at_most)
            return [_ratio(f"{probe} / {claim.to}", (probe, facts), (claim.to, facts), bounds) for probe in claim.of]
        case OrderClaim():
            pairs = pairwise(claim.order)
            figures = [_ratio(f"{more} / {less}", (more, facts), (less, facts), (1.0, None)) for less, more in pairs]
            # A part of an order may refute it, and does not confirm it.
            is_known = all(figure.holds is not None for figure in figures)
            return [replace(figure, holds=None) if figure.holds and not is_known else figure for figure in figures]
        case ChangeClaim():
            assert later is not None
            tables = " / ".join(reversed(claim.tables))
            bounds = (claim.at_least, claim.at_most)
            return [_ratio(f"{probe}: {tables}", (probe, later), (probe, facts), bounds) for probe in claim.of]
        case TrapsClaim():
            figures = []
            for probe, expected in claim.int3_per_hit.items():
                count = facts.traps.get(probe)
                # Only traps beyond the document's count can be the single step's.
                rest = NOTHING if count is None or count <= expected else number(count - claim.single_step)
                traps, is_expected = (NOTHING, None) if count is None else (number(count), count == expected)
                figures.append(ClaimFigure(f"{probe}: int3 a hit", traps, is_expected))
                figures.append(ClaimFigure(f"{probe}: without the single step", rest, None, judged=False))
            return figures
        case SizeClaim():
            size, extra = facts.sizes.get(claim.of), facts.extra_bytes.get(claim.of)
            holds = None if size is None else claim.at_least <= size <= claim.at_most
            times = ClaimFigure(f"{claim.of}: relative size", NOTHING if size is None else f"{size:.2f}", holds)
            more = NOTHING if extra is None else str(extra)
            return [times, ClaimFigure(f"{claim.of}: extra bytes", more, None, judged=False)]
        case MechanismClaim():
            mechanism, count = facts.mechanisms.get(claim.probe), facts.traps.get(claim.probe)
            if mechanism is None or count is None:
                return [ClaimFigure(claim.probe, NOTHING, None)]
            holds = (mechanism, count) == (claim.mechanism, claim.int3_per_hit)
            return [ClaimFigure(claim.probe, f"{mechanism}, {number(count)} int3", holds)]


_Probe = tuple[str, ClaimInputs]
"""A probe with the figures of its table."""


def _ratio(label: str, above: _Probe, below: _Probe, bounds: tuple[float | None, float | None]) -> ClaimFigure:
    (of, facts), (to, other_inputs), (lower, upper) = above, below, bounds
    value, base = facts.overheads.get(of), other_inputs.overheads.get(to)
    if value is None or base is None:
        return ClaimFigure(label, NOTHING, None)
    if of in facts.undecided or to in other_inputs.undecided:
        return ClaimFigure(label, UNDECIDED, None)
    if of not in facts.ranges or to not in other_inputs.ranges:
        # Unlike the quotient, the product is also correct for a negative base.
        enough = lower is None or value >= lower * base
        small = upper is None or value <= upper * base
        return ClaimFigure(label, ratio_figure(value, base) if base > 0 else BELOW_ZERO, enough and small)
    # Decided if the claim holds, or fails, for every CPU within the ranges.
    text = ratio_figure(value, base)
    ranges = facts.ranges[of], other_inputs.ranges[to]
    if any(time + sum(map(min, each.values())) <= 0 for time, each in zip((value, base), ranges, strict=True)):
        return ClaimFigure(label, text, None)
    least, most = (_extreme(value, base, *ranges, pick) for pick in (min, max))
    at_least, at_most = lower or 0.0, upper or inf
    holds = True if at_least <= least and most <= at_most else None
    if most < at_least or least > at_most:
        holds = False
    is_fit = of in facts.fitted and to in other_inputs.fitted
    mark = f" {FIT}" if is_fit else ""
    return ClaimFigure(label, f"{text}{mark} ({least:.2f} to {most:.2f})", holds, is_fit=is_fit)


def _extreme(value: float, base: float, of: Ranges, to: Ranges, pick: Callable[..., tuple[float, float]]) -> float:
    """The least (``pick`` is min) or greatest ratio of two times above 0 whose causes vary together.

    By W. Dinkelbach, On Nonlinear Fractional Programming, 1967: each step's ratio is nearer to the extreme.
    """
    none = (0.0, 0.0)
    ends = [tuple(zip(of.get(cause, none), to.get(cause, none), strict=True)) for cause in {**of, **to}]
    ratio, nearer = inf, value / base
    while not isclose(ratio, nearer):
        ratio = nearer
        chosen = [pick(pair, key=lambda end: end[0] - ratio * end[1]) for pair in ends]
        nearer = (value + sum(value_part for value_part, _ in chosen)) / (
            base + sum(base_part for _, base_part in chosen)
        )
    return nearer


_CLOCKS: dict[ClaimClock, str] = {
    "instructions": "counted in instructions",
    "wall": "by the wall clock",
    "modelled": "in modelled nanoseconds",
}


_NO_TEST = "The prices were fitted to these figures: it is no test of the model."


class Verdict(StrEnum):
    """The outcome of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "not decided"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class ClaimColumn:
    """A claim's figures for one measured table, or of two; ``published`` has the same rows as ``measured``."""

    name: str
    tables: Sequence[str]
    measured: Sequence[ClaimFigure]
    published: Sequence[ClaimFigure]

    @property
    def decided(self) -> bool:
        return all(figure.holds is not None for figure in self.measured if figure.judged)


@dataclass(frozen=True)
class ClaimOutcome:
    """A claim's verdict; ``columns`` has the measured tables only."""

    claim: Claim
    columns: Sequence[ClaimColumn]
    clock: ClaimClock

    @property
    def verdict(self) -> Verdict:
        """HOLDS if all judged figures agree, FAILS if one does not; without any, UNDECIDED or, unmeasured, UNKNOWN."""
        figures = [figure for column in self.columns for figure in column.measured]
        judged = [figure.holds for figure in figures if figure.holds is not None]
        if judged:
            return Verdict.HOLDS if all(judged) else Verdict.FAILS
        return Verdict.UNDECIDED if any(figure.text != NOTHING for figure in figures) else Verdict.UNKNOWN

    @property
    def is_fit(self) -> bool:
        """Whether all figures that are judged are of prices that were fitted to them."""
        judged = [figure.is_fit for column in self.columns for figure in column.measured if figure.holds is not None]
        return bool(judged) and all(judged)

    @property
    def reason(self) -> str | None:
        """Why the claim is not judged on the clock, if so."""
        return self.claim.undecided.get(self.clock)

    @property
    def undecided(self) -> Sequence[str]:
        """The claim's tables that were not, or only partly, measured."""
        decided = {table for column in self.columns if column.decided for table in column.tables}
        return [table for table in self.claim.tables if table not in decided]


@dataclass(frozen=True)
class Assessment:
    """The verdicts on all claims of a document, on one clock, by the run with this id."""

    run: str
    title: str
    outcomes: Sequence[ClaimOutcome]


_Measured = tuple[CellGroup, ReferenceTable, ClaimInputs]


def assess(run: RunRecord, registry: ReportRegistry, modelled: ModelledRun | None = None) -> list[Assessment]:
    """Judge the claims of each document that the run is compared with, on each of its clocks.

    Claimed ratios, orders and changes are about time: counted cells that have modelled times are judged by these and
    their ranges. With ``modelled`` times, nothing else is judged.
    """
    times = {cell.id: cell for cell in modelled.cells if cell.overhead is not None} if modelled else {}
    measured_of: dict[tuple[str, ClaimClock], list[_Measured]] = {}
    timed: dict[str, list[_Measured]] = {}
    for group in cell_groups(run, registry):
        table = group.reference
        if table is None:
            continue
        if modelled is None:
            measured_of.setdefault((table.document_id, group.first.clock), []).append(
                (group, table, measured_inputs(group))
            )
            if cells := [time for cell in group.cells if (time := group.time(cell)) is not None]:
                timed.setdefault(table.document_id, []).append((group, table, modelled_inputs(cells)))
        elif cells := [times[cell.id] for cell in group.cells if cell.id in times]:
            measured_of.setdefault((table.document_id, "modelled"), []).append((group, table, modelled_inputs(cells)))
    assessments = []
    for (document, clock), measurements in measured_of.items():
        ratio_claims = [claim for claim in claims().values() if claim.document == document]
        ratios = [claim for claim in ratio_claims if isinstance(claim, RatioClaim | OrderClaim | ChangeClaim)]
        by_time = timed.get(document, []) if clock == "instructions" else []
        indication = f", {INDICATION}" if any(group.emulated for group, *_ in measurements) else ""
        also = f", and those of time {_CLOCKS['modelled']}" if by_time else ""
        title = f"Claims of {measurements[0][1].document}, {_CLOCKS[clock]}{also}{indication}"
        judged = []
        for claim in ratio_claims if modelled is None else ratios:
            is_timed = claim in ratios and "modelled" not in claim.undecided
            its_times = [measurement for measurement in by_time if is_timed and measurement[1].name in claim.tables]
            judged.append(_outcome(claim, its_times, "modelled") if its_times else _outcome(claim, measurements, clock))
        assessments.append(Assessment(run.run, title, judged))
    return assessments


def _outcome(claim: Claim, measurements: Sequence[_Measured], clock: ClaimClock) -> ClaimOutcome:
    measured = [measurement for measurement in measurements if measurement[1].name in claim.tables]
    names = Counter(group.name for group, *_ in measured)
    columns = []
    each = _pairs(claim.tables, measured) if isinstance(claim, ChangeClaim) else ([group] for group in measured)
    for compared in each:
        figures = compare(claim, *(inputs for *_, inputs in compared))
        published = compare(claim, *(published_inputs(table) for _, table, _ in compared))
        if clock in claim.undecided:
            figures = [replace(figure, holds=None) for figure in figures]
        # Groups of the same name differ in kernel or machine.
        labels = [
            group.name if names[group.name] == 1 else f"{group.name} {group.first.cpu} {group.kernel}"
            for group, *_ in compared
        ]
        columns.append(ClaimColumn(" to ".join(labels), [table.name for _, table, _ in compared], figures, published))
    return ClaimOutcome(claim, columns, clock)


def _pairs(tables: Sequence[str], measured: Sequence[_Measured]) -> Iterator[Sequence[_Measured]]:
    """The groups of two tables that measure the same calls, on other kernels or at other points."""
    before, after = ([measurement for measurement in measured if measurement[1].name == table] for table in tables)
    for pair in product(before, after):
        firsts = [group.first for group, *_ in pair]
        if len({(first.handler, first.cpu, first.smp, first.benchmark, first.metric) for first in firsts}) == 1:
            yield pair


_OPTIONS: dict[ClaimClock, str] = {
    "instructions": "",
    "wall": " --set clock=wall --set benchmark.repeats=12",
    "modelled": "",
}
"""Options of ``run`` that measure a document's experiment on a clock."""


@dataclass(frozen=True)
class Statement:
    """A claim with its verdict, its figures, if any, and remarks."""

    verdict: Verdict
    sentence: str
    grid: Grid | None
    remarks: Sequence[str]


@dataclass(frozen=True)
class ClaimsPart:
    """The printed claims of a document; ``sentences`` are about claims that are not among the statements."""

    title: str
    statements: Sequence[Statement]
    sentences: Sequence[str]


ClaimsLayout = Callable[[Assessment], ClaimsPart]
"""Lays out a document's claims."""


def all_claims(assessment: Assessment) -> ClaimsPart:
    """All claims with their figures, decided or not."""
    statements = [
        Statement(outcome.verdict, outcome.claim.statement, _grid(outcome), _remarks(outcome))
        for outcome in assessment.outcomes
    ]
    return ClaimsPart(assessment.title, statements, [])


def decided_claims(assessment: Assessment) -> ClaimsPart:
    """The claims that the run decides, with the figures of failed ones, and how to decide the others."""
    outcomes = assessment.outcomes
    unknown = [outcome for outcome in outcomes if outcome.verdict in (Verdict.UNKNOWN, Verdict.UNDECIDED)]
    elsewhere = [outcome for outcome in unknown if not outcome.columns]
    reasons = Counter(outcome.reason for outcome in unknown if outcome.columns)
    left_out = []
    if elsewhere:
        config, options = f"configs/{elsewhere[0].claim.document}.yaml", _OPTIONS[elsewhere[0].clock]
        left_out.append(
            f"{len(elsewhere)} of {len(outcomes)} claims need other tables: {PROGRAM} run {config}{options}"
        )
    for reason, count in reasons.items():
        sentence = f"The figures of these tables do not decide {count} of {len(outcomes)} claims."
        left_out.append(sentence if reason is None else f"{sentence} {reason}")
    if outcomes:
        clock = " --clock modelled" if all(outcome.clock == "modelled" for outcome in outcomes) else ""
        left_out.append(f"For all figures: {PROGRAM} report {assessment.run}{clock} --claims")
    statements = [
        Statement(
            outcome.verdict,
            outcome.claim.statement,
            None,
            [
                *([_contradiction(outcome)] if outcome.verdict is Verdict.FAILS else []),
                *([_NO_TEST] if outcome.is_fit else []),
            ],
        )
        for outcome in outcomes
        if outcome not in unknown
    ]
    return ClaimsPart(assessment.title, statements, left_out)


def _contradiction(outcome: ClaimOutcome) -> str:
    """The first table's figures that contradict a claim, the names of other such tables, and the reason."""
    first, *other_columns = [
        column for column in outcome.columns if any(figure.holds is False for figure in column.measured)
    ]
    also = f"; also {', '.join(column.name for column in other_columns)}" if other_columns else ""
    wrong = []
    for measured, published in zip(first.measured, first.published, strict=True):
        if measured.holds is False:
            beside = f" (published {published.text})" if published.text != NOTHING else ""
            wrong.append(f"{measured.label} = {measured.text}{beside}")
    return f"{first.name}: {', '.join(wrong)}{also}. {outcome.claim.why[outcome.clock]}"


def _grid(outcome: ClaimOutcome) -> Grid | None:
    if not outcome.columns:
        return None
    columns = Columns(columns_of(outcome.columns, attrgetter("name")))

    def measured(index: int) -> Callable[[ClaimColumn], str]:
        return lambda column: column.measured[index].text

    def published(index: int) -> Callable[[ClaimColumn], str]:
        return lambda column: column.published[index].text

    rows = []
    for index, first in enumerate(outcome.columns[0].measured):
        rows.append(columns.row(first.label, measured(index)))
        if any(column.published[index].text != NOTHING for column in outcome.columns):
            rows.append(columns.row("  published", published(index)))
    return columns.grid(rows)


def _remarks(outcome: ClaimOutcome) -> list[str]:
    if not outcome.columns:
        return []
    remarks = [outcome.claim.why[outcome.clock]] if outcome.verdict is Verdict.FAILS else []
    remarks += [_NO_TEST] if outcome.is_fit else []
    if outcome.reason is not None:
        remarks.append(outcome.reason)
    elif outcome.undecided:
        remarks.append(f"Not measured or not decided: {', '.join(outcome.undecided)}.")
    if any(
        BELOW_ZERO in (figure.text for figure in (*column.measured, *column.published)) for column in outcome.columns
    ):
        remarks.append(f"{BELOW_ZERO}: the overhead in the denominator is below zero.")
    return remarks
