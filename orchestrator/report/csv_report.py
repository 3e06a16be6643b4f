# SPDX-License-Identifier: GPL-2.0-only
"""A run for spreadsheets and statistics programs: one row per cell, in columns that are the same for every run."""

from __future__ import annotations

import csv
import io
import json

from pydantic import BaseModel

from orchestrator.results.contract import CellRecord, Evidence, ReferenceValue, RunRecord, WorkEvidence

_NESTED: dict[str, type[BaseModel]] = {"evidence": Evidence, "work": WorkEvidence, "reference": ReferenceValue}
"""Fields with a column for each of theirs."""
_OPEN = ("parameters", "purposes")
"""Fields whose names differ from run to run: each is one column, of JSON."""
_LEFT_OUT = ("text", "profile")
"""Fields with lists, or with a file of their own, which a row has no columns for; the JSON report has them."""
_LATER = ("worker",)
"""Fields that came later: their columns are behind all others."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")

_Scalar = str | int | float | bool | None


def render_csv(run: RunRecord) -> str:
    """Return ``run`` as RFC 4180 text with a header line, which depends on this program's version alone.

    Samples are joined by blanks, notes by lines. A text that a spreadsheet would take for a formula is led by an
    apostrophe; figures are left as they are.
    """
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, _columns(), restval="", lineterminator="\r\n")
    writer.writeheader()
    for cell in run.cells:
        writer.writerow({"run": run.run, "experiment": run.experiment, **_row(cell)})
    return file.getvalue()


def _columns() -> list[str]:
    columns = ["run", "experiment"]
    for name in CellRecord.model_fields:
        if name == "interval":
            columns += ["low", "high"]
        elif name not in (*_NESTED, *_OPEN, *_LEFT_OUT, *_LATER):
            columns.append(name)
    columns += _OPEN
    columns += [f"{group}.{name}" for group, model in _NESTED.items() for name in model.model_fields]
    return [*columns, *_LATER]


def _row(cell: CellRecord) -> dict[str, str]:
    plain = cell.model_dump(mode="json")
    low, high = plain.pop("interval") or (None, None)
    row: dict[str, _Scalar] = {
        **{name: value for name, value in plain.items() if name not in (*_NESTED, *_OPEN, *_LEFT_OUT, "samples")},
        **{name: json.dumps(plain[name]) for name in _OPEN if plain.get(name)},
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
