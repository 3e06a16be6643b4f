# SPDX-License-Identifier: GPL-2.0-only
"""A night on a terminal or in a journal: what happened, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.report.export import first_line
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.night_words import acceptance, against, change_sentence, reproducers, verdict
from orchestrator.report.summary import summary
from orchestrator.results.night import Night

_LISTED = 10


def night_lines(night: Night, registry: ReportRegistry) -> Iterator[str]:
    """The lines of the summary; what is beyond its budget or failed first."""
    yield verdict(night)
    yield against(night)
    yield from _wrong(night)
    yield from (f"- {sentence}" for sentence in summary(night.run.record, registry))
    yield from (f"problem: {sentence}" for sentence in night.problems)
    again = [f"again: {command}" for command in reproducers(night)]
    yield from again
    accepted = acceptance(night)
    if accepted is not None:
        yield f"to accept it as it is: {accepted}"


def _wrong(night: Night) -> Iterator[str]:
    listed = [f"beyond budget: {change_sentence(night, one)}" for one in night.beyond]
    if not listed:
        listed = [f"failed: {cell.id}: {first_line(cell)}" for cell in night.failed]
    yield from listed[:_LISTED]
    if len(listed) > _LISTED:
        yield f"... and {len(listed) - _LISTED} more"
