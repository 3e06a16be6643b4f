# SPDX-License-Identifier: GPL-2.0-only
"""A run in its three most important sentences.

The first of each rank, in the ranks' order: cells that failed, claims that do not hold, what differs between kernels,
the largest overhead, how it compares with what was published, what is not decided. Where fewer ranks have a sentence,
their next ones follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from orchestrator.counted import counted
from orchestrator.report.claims import Assessment, Verdict, assess
from orchestrator.report.findings import Finding, Rank
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.panels import groups
from orchestrator.report.reasons import by_reason
from orchestrator.report.workers import measured_by
from orchestrator.results.contract import CellRecord, RunRecord

SENTENCES = 3
_REASONS = 3
_LONGEST_REASON = 160


def summary(run: RunRecord, registry: ReportRegistry) -> list[str]:
    """The most important sentences on a run, at most three, the most important first; none of a run without cells.

    Behind them comes which workers measured it, if a fleet did.
    """
    workers = measured_by(run)
    sentences = most_important(
        [
            *_without_number(run),
            *(finding for assessment in assess(run, registry) for finding in contradicted(assessment)),
            *(finding for kind, group in groups(run, registry) for finding in kind.findings(group)),
        ]
    )
    return sentences if workers is None else [*sentences, workers]


def most_important(findings: Iterable[Finding]) -> list[str]:
    """The sentences by the rule above, each once."""
    by_rank: dict[Rank, list[Finding]] = {}
    for finding in findings:
        by_rank.setdefault(finding.rank, []).append(finding)
    in_order = [sorted(of_rank, key=lambda one: -one.weight) for _, of_rank in sorted(by_rank.items())]
    chosen = [of_rank[0] for of_rank in in_order] + [one for of_rank in in_order for one in of_rank[1:]]
    kept = list(dict.fromkeys(one.sentence for one in chosen))[:SENTENCES]
    ranks = {one.sentence: one.rank for one in chosen}
    return sorted(kept, key=lambda sentence: ranks[sentence])


def contradicted(assessment: Assessment) -> Iterator[Finding]:
    """How many of a document's claims do not hold, and the first of them with its figure."""
    decided = [one for one in assessment.outcomes if one.verdict is not Verdict.UNKNOWN]
    failing = [one for one in decided if one.verdict is Verdict.FAILS]
    if not failing:
        return
    column, wrong = next(
        (column, one) for column in failing[0].columns for one in column.measured if one.holds is False
    )
    claim = failing[0].claim
    yield Finding(
        Rank.CONTRADICTED,
        f"Claims of {claim.document} that do not hold: {len(failing)} of {len(decided)} decided ones. "
        f"The first: {claim.sentence} ({column.name}: {wrong.label} = {wrong.text})",
        len(failing) / len(decided),
    )


def _without_number(run: RunRecord) -> Iterator[Finding]:
    """The cells that failed, with the reason that most of them have; what could not be measured, by reason."""
    failed = by_reason(cell for cell in run.cells if cell.status == "failed")
    if failed:
        most = max(failed, key=len)
        count = sum(map(len, failed))
        how_many = f"Failed: {count} of {counted(len(run.cells), 'cell')}"
        yield Finding(Rank.FAILED, f"{how_many}, {_which(most, count)}: {_first_line(most[0].reason)}")
    others = by_reason(cell for cell in run.cells if cell.status in ("skipped", "unsupported"))
    if others:
        rank = Rank.OTHER if any(cell.status == "ok" for cell in run.cells) else Rank.FAILED
        by_status = Counter(cell.status for group in others for cell in group)
        states = ", ".join(f"{count} {status}" for status, count in by_status.items())
        reasons = [
            f"{group[0].id if len(group) == 1 else counted(len(group), 'cell')}: {_first_line(group[0].reason)}"
            for group in sorted(others, key=len, reverse=True)
        ]
        more = f"; {counted(len(reasons) - _REASONS, 'more reason')}" if len(reasons) > _REASONS else ""
        how_many = f"Without a number: {by_status.total()} of {counted(len(run.cells), 'cell')} ({states})"
        yield Finding(rank, f"{how_many}. {'; '.join(reasons[:_REASONS])}{more}.")


def _which(group: Sequence[CellRecord], failed: int) -> str:
    """Of the cells that failed those with the reason that follows."""
    first = group[0].id
    if failed == 1:
        return first
    if len(group) == 1:
        return f"the first {first}"
    return f"{'all' if len(group) == failed else f'{len(group)} of them'} for one reason, the first {first}"


def _first_line(reason: str | None) -> str:
    line: Sequence[str] = (reason or "").splitlines()
    text = line[0] if line else "no reason"
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 4]} ..."
