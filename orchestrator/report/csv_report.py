# SPDX-License-Identifier: GPL-2.0-only
"""A run for spreadsheets and statistics programs: one row per cell, every scalar in a column of its own."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from orchestrator.catalog.purposes import in_order
from orchestrator.results.contract import CellRecord, Evidence, ReferenceValue, RunRecord, WorkEvidence

_NESTED = ("evidence", "work", "reference", "parameters", "purposes")
_LISTS = ("text", "profile")
"""Fields with lists, or with a file of their own, which a row has no columns for; the JSON report has them."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")

_Scalar = str | int | float | bool | None


def render_csv(run: RunRecord) -> str:
    """Return ``run`` as RFC 4180 text with a header line.

    Samples are joined by blanks, notes by lines. A text that a spreadsheet would take for a formula is led by an
    apostrophe; figures are left as they are.
    """
    parameters = sorted({name for cell in run.cells for name in cell.parameters})
    spent = in_order([name for cell in run.cells for name in cell.purposes])
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, _columns(parameters, spent, _work_fields(run)), restval="", lineterminator="\r\n")
    writer.writeheader()
    for cell in run.cells:
        writer.writerow({"run": run.run, "experiment": run.experiment, **_row(cell)})
    return file.getvalue()


def _columns(parameters: list[str], spent: Sequence[str], work: list[str]) -> list[str]:
    columns = ["run", "experiment"]
    for name in CellRecord.model_fields:
        if name == "interval":
            columns += ["low", "high"]
        elif name not in (*_NESTED, *_LISTS):
            columns.append(name)
    columns += [f"parameters.{name}" for name in parameters]
    columns += [f"purposes.{name}" for name in spent]
    columns += [f"evidence.{name}" for name in Evidence.model_fields]
    columns += [f"work.{name}" for name in work]
    columns += [f"reference.{name}" for name in ReferenceValue.model_fields]
    return columns


def _work_fields(run: RunRecord) -> list[str]:
    """The fields of a work's evidence, where a cell has one: other runs have no columns for them."""
    return list(WorkEvidence.model_fields) if any(cell.work for cell in run.cells) else []


def _row(cell: CellRecord) -> dict[str, str]:
    plain = cell.model_dump(mode="json")
    low, high = plain.pop("interval") or (None, None)
    row: dict[str, _Scalar] = {
        **{name: value for name, value in plain.items() if name not in (*_NESTED, *_LISTS, "samples")},
        "notes": "\n".join(cell.notes),
        "low": low,
        "high": high,
    }
    for group in _NESTED:
        row |= {f"{group}.{name}": value for name, value in (plain.get(group) or {}).items()}
    fields = {name: _field(value) for name, value in row.items() if value is not None}
    return {**fields, "samples": " ".join(map(repr, cell.samples))}


def _field(value: _Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    return repr(value)
