# SPDX-License-Identifier: GPL-2.0-only
"""The tables of a run, in the layouts of its benchmark kinds."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.report.footnotes import Footnote, shared_key
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import ReportRegistry, run_tables
from orchestrator.results.contract import RunRecord

NO_CELLS = "No cell of this run has an outcome yet."
_LONG = 150
"""The length from which a repeated reason is replaced by a reference."""


def sheets(run: RunRecord, registry: ReportRegistry) -> list[Sheet]:
    """The run's tables in order, in the layouts of their benchmark kinds.

    A long reason of an earlier table's footnote is replaced by a reference to it.
    """
    tables = [kind.sheet(groups) for kind, groups in run_tables(run, registry)]
    references: dict[str, str] = {}
    return [
        replace(sheet, footnotes=_dedupe_footnotes(sheet, number, references)) for number, sheet in enumerate(tables, 1)
    ]


def _dedupe_footnotes(sheet: Sheet, number: int, references: dict[str, str]) -> list[Footnote]:
    notes = []
    for note in sheet.footnotes:
        key = shared_key(note.reason)
        if key in references:
            note = replace(note, text=note.text.removesuffix(note.reason) + references[key])
        elif len(key) > _LONG and note.mark is not None:
            references[key] = f"see [{note.mark}] of table {number}"
        notes.append(note)
    return notes
