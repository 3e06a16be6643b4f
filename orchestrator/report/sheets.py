# SPDX-License-Identifier: GPL-2.0-only
"""The tables that a run is printed as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.report.footnotes import Footnote
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.panels import groups
from orchestrator.report.reasons import shared_key
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import RunRecord

_LONG = 150
"""Characters of a reason that a reader would not read twice: two lines."""


def sheets(run: RunRecord, registry: ReportRegistry) -> list[Sheet]:
    """Return the run's tables in its order, each in the layout of its kind of benchmark.

    What a note of an earlier table has said at length, a later one refers to.
    """
    return said_once([kind.sheet(group) for kind, group in groups(run, registry)])


def said_once(tables: Sequence[Sheet]) -> list[Sheet]:
    """The tables, each long reason of a note in the first one that has it; the others name its mark there."""
    said: dict[str, str] = {}
    return [replace(sheet, footnotes=_shortened(sheet, number, said)) for number, sheet in enumerate(tables, 1)]


def _shortened(sheet: Sheet, number: int, said: dict[str, str]) -> list[Footnote]:
    notes = []
    for note in sheet.footnotes:
        key = shared_key(note.reason)
        if key in said:
            note = replace(note, text=note.text.removesuffix(note.reason) + said[key])
        elif len(key) > _LONG and note.mark is not None:
            said[key] = f"see [{note.mark}] of table {number}"
        notes.append(note)
    return notes
