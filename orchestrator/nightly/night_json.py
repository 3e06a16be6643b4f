# SPDX-License-Identifier: GPL-2.0-only
"""What a webhook gets of a nightly run (docs/nightly.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from orchestrator.comparison.comparison import CellChange, Change
from orchestrator.nightly.night import (
    MOST_CELLS,
    NightlyResult,
    comparison_sentence,
    good_or_bad,
    status_counts,
    subject,
)
from orchestrator.profile.stored.profile_difference import SymbolDifference
from orchestrator.results.contract import CONTRACT_OF_COMPARISONS
from orchestrator.results.printed_json import Printed


class ExceededCell(Printed):
    """A cell that exceeds its budget, failed or is missing."""

    cell: str
    """The cell's id, or both ids."""
    change: Change
    """The verdict."""
    why: Sequence[str]
    """Sentences on exceeded budgets."""
    symbol: SymbolDifference | None
    """The symbol that changed most; None without profiles."""


class FailedCell(Printed):
    """A cell that failed."""

    cell: str
    """The cell's id."""
    reason: str
    """The first line of its reason."""


class NightReport(Printed):
    """A nightly run and its comparison with the last good one, for a webhook."""

    contract: Literal[2] = CONTRACT_OF_COMPARISONS
    """The version of these keys and words."""
    text: str
    """Two lines, which Mattermost and Slack show."""
    night: Literal["good", "bad"]
    """Whether later runs are compared with this one."""
    experiment: str
    """The experiment's name."""
    file: str
    """The experiment's file."""
    run: str
    """The run's id."""
    compared_with: str | None
    """The last good run; None for the first one."""
    cells: Mapping[str, int]
    """The number of cells by status; ``planned`` are those without an outcome."""
    counts: Mapping[Change, int]
    """The number of cells by change."""
    exceeded: Sequence[ExceededCell]
    """At most 20 cells that exceed their budgets."""
    failed: Sequence[FailedCell]
    """At most 20 failed cells."""
    host: str
    """The host's name."""

    @classmethod
    def of(cls, result: NightlyResult, host: str) -> NightReport:
        comparison = None if result.compared is None else result.compared.comparison
        return cls(
            text=f"{subject(result)}\n{comparison_sentence(result)}",
            night=good_or_bad(result),
            experiment=result.experiment,
            file=result.file,
            run=result.run.record.run,
            compared_with=None if result.compared is None else result.compared.before.record.run,
            cells=status_counts(result),
            counts={} if comparison is None else comparison.counts,
            exceeded=[_exceeded(result, change) for change in result.exceeded[:MOST_CELLS]],
            failed=[FailedCell(cell=cell.id, reason=cell.first_line) for cell in result.failed[:MOST_CELLS]],
            host=host,
        )


def _exceeded(result: NightlyResult, change: CellChange) -> ExceededCell:
    symbol = result.most_changed.get(change.pair.title)
    return ExceededCell(
        cell=change.pair.title,
        change=change.change,
        why=change.exceeded,
        symbol=symbol,
    )


class UnmeasuredNight(Printed):
    """A nightly run without measurements, for a webhook."""

    contract: Literal[2] = CONTRACT_OF_COMPARISONS
    """The version of these keys and words."""
    text: str
    """Two lines, which Mattermost and Slack show."""
    night: Literal["not measured"]
    """The state of the night."""
    experiment: str
    """The experiment's name."""
    file: str
    """The experiment's file."""
    problems: Sequence[str]
    """Why nothing was measured."""
    host: str
    """The host's name."""

    @classmethod
    def of(cls, experiment: str, file: str, reason: str, host: str) -> UnmeasuredNight:
        return cls(
            text=f"[{experiment}] not measured\n{reason}",
            night="not measured",
            experiment=experiment,
            file=file,
            problems=[reason],
            host=host,
        )
