# SPDX-License-Identifier: GPL-2.0-only
"""The summary of a run: the first sentence of each rank, in the order of the ranks.

The ranks are failed cells, failed claims, differences between kernels, the largest overhead, the comparison with
published figures, undecided differences. If fewer than three ranks have a sentence, their next ones follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from orchestrator.plain_text import counted, cut, shown
from orchestrator.report.claims import Assessment, Verdict, assess
from orchestrator.report.footnotes import by_reason
from orchestrator.report.highlights import Highlight, Rank
from orchestrator.report.table_report import ReportRegistry, run_tables
from orchestrator.results.contract import RunRecord
from orchestrator.results.parameters import IMPLIED_OPTIONS, USUAL_PARAMETERS

_NAMED = 8


def measured_by(run: RunRecord) -> str | None:
    """``Measured by a fleet: a-1 12 cells, a-2 12 cells.``; None without a fleet."""
    cells = Counter(cell.worker for cell in run.cells if cell.worker is not None)
    if not cells:
        return None
    named = [f"{name} {counted(count, 'cell')}" for name, count in sorted(cells.items())]
    here = sum(cell.worker is None for cell in run.cells)
    here_too = [f"{counted(here, 'cell')} by this machine"] if here else []
    return f"Measured by a fleet: {', '.join([*shown(named, _NAMED, '{} more workers'), *here_too])}."


def of_kernels(run: RunRecord) -> Iterator[str]:
    """Sentences on kernels with parameters and options of their own: what the lab passes, and what came along."""
    usual = dict.fromkeys(filter(None, map(USUAL_PARAMETERS.of, run.cells)))
    yield from (
        f"Every kernel boots with {parameters}; its own parameters replace those of the same name."
        for parameters in usual
    )
    implied = {cell.kernel: options for cell in run.cells if (options := IMPLIED_OPTIONS.of(cell)) is not None}
    yield from (f"The options of {kernel} also set {found}." for kernel, found in implied.items())


SENTENCES = 3
_REASONS = 3
_LONGEST_REASON = 160


def summary(run: RunRecord, registry: ReportRegistry) -> list[str]:
    """At most three sentences on a run, the most important first, then those on its kernels and a fleet's workers."""
    workers = measured_by(run)
    sentences = most_important(
        [
            *_without_number(run),
            *(finding for assessment in assess(run, registry) for finding in contradicted(assessment)),
            *(finding for kind, groups in run_tables(run, registry) for finding in kind.findings(groups)),
        ]
    )
    return [*sentences, *of_kernels(run), *([] if workers is None else [workers])]


def most_important(findings: Iterable[Highlight]) -> list[str]:
    """The distinct sentences by the rule above."""
    by_rank: dict[Rank, list[Highlight]] = {}
    for finding in findings:
        by_rank.setdefault(finding.rank, []).append(finding)
    in_order = [sorted(of_rank, key=lambda highlight: -highlight.weight) for _, of_rank in sorted(by_rank.items())]
    chosen = [of_rank[0] for of_rank in in_order] + [highlight for of_rank in in_order for highlight in of_rank[1:]]
    kept = list(dict.fromkeys(highlight.sentence for highlight in chosen))[:SENTENCES]
    ranks = {highlight.sentence: highlight.rank for highlight in chosen}
    return sorted(kept, key=lambda sentence: ranks[sentence])


def contradicted(assessment: Assessment) -> Iterator[Highlight]:
    """The number of a document's claims that do not hold, and the first of them with its figure."""
    decided = [outcome for outcome in assessment.outcomes if outcome.verdict in (Verdict.HOLDS, Verdict.FAILS)]
    failing = [outcome for outcome in decided if outcome.verdict is Verdict.FAILS]
    if not failing:
        return
    column, wrong = next(
        (column, figure) for column in failing[0].columns for figure in column.measured if figure.holds is False
    )
    claim = failing[0].claim
    yield Highlight(
        Rank.CONTRADICTED,
        f"Claims of {claim.document} that do not hold: {len(failing)} of {len(decided)} decided ones. "
        f"The first: {claim.statement} ({column.name}: {wrong.label} = {wrong.text})",
        len(failing) / len(decided),
    )


def _without_number(run: RunRecord) -> Iterator[Highlight]:
    """The failed cells with the most frequent reason; skipped and unsupported cells by reason."""
    failed = by_reason(cell for cell in run.cells if cell.status == "failed")
    if failed:
        most = max(failed, key=len)
        count = sum(map(len, failed))
        first = most[0].id
        if count > 1:
            all_of = "all" if len(most) == count else f"{len(most)} of them"
            first = f"the first {first}" if len(most) == 1 else f"{all_of} for the same reason, the first {first}"
        how_many = f"Failed: {count} of {counted(len(run.cells), 'cell')}"
        yield Highlight(Rank.FAILED, f"{how_many}, {first}: {cut(most[0].first_line, _LONGEST_REASON)}")
    other_cells = by_reason(cell for cell in run.cells if cell.status in ("skipped", "unsupported"))
    if other_cells:
        rank = Rank.OTHER if any(cell.status == "ok" for cell in run.cells) else Rank.FAILED
        by_status = Counter(cell.status for group in other_cells for cell in group)
        states = ", ".join(f"{count} {status}" for status, count in by_status.items())
        reasons = []
        for group in sorted(other_cells, key=len, reverse=True):
            which = group[0].id if len(group) == 1 else counted(len(group), "cell")
            reasons.append(f"{which}: {cut(group[0].first_line, _LONGEST_REASON)}")
        more = f"; {counted(len(reasons) - _REASONS, 'more reason')}" if len(reasons) > _REASONS else ""
        how_many = f"Without a number: {by_status.total()} of {counted(len(run.cells), 'cell')} ({states})"
        yield Highlight(rank, f"{how_many}. {'; '.join(reasons[:_REASONS])}{more}.")
