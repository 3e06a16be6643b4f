# SPDX-License-Identifier: GPL-2.0-only
"""Runs as CSV, a row for each cell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from pydantic import BaseModel

from orchestrator.report.columns import Column, Columns
from orchestrator.report.output import Output
from orchestrator.report.run_view import RunView
from orchestrator.results.contract import CellRecord, Evidence, ReferenceValue, RunRecord, WorkEvidence

_NESTED: dict[str, type[BaseModel]] = {"evidence": Evidence, "work": WorkEvidence, "reference": ReferenceValue}
"""Fields with one column per subfield."""
_OPEN = ("parameters", "purposes")
"""Fields with varying keys: each is one column of JSON."""
_LEFT_OUT = ("text", "profile", "executed", "programs")
"""Fields with lists or files, which only the JSON report has."""
_LATER = ("worker",)
"""Fields added later, whose columns come last."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def render_csv(run: RunRecord) -> str:
    """``run`` as RFC 4180 text with a header line, which depends only on the program's version.

    Samples are separated by blanks, notes by line feeds. An apostrophe protects text that a spreadsheet would take for
    a formula.
    """
    columns = [
        Column("run", lambda _: _field(run.run)),
        Column("experiment", lambda _: _field(run.experiment)),
        *_columns(),
    ]
    return Columns(columns).csv(run.cells)


def _columns() -> Iterator[Column[CellRecord]]:
    """A column for each field of a record; columns of what is computed from the fields come last of all."""
    for name in CellRecord.model_fields:
        if name == "interval":
            yield Column("low", lambda cell: _field(cell.interval and cell.interval[0]))
            yield Column("high", lambda cell: _field(cell.interval and cell.interval[1]))
        elif name == "samples":
            yield Column(name, lambda cell: " ".join(map(repr, cell.samples)))
        elif name == "notes":
            yield Column(name, lambda cell: _field("\n".join(cell.notes)))
        elif name not in (*_NESTED, *_OPEN, *_LEFT_OUT, *_LATER):
            yield _of(name)
    for name in _OPEN:
        yield Column(name, partial(_json, name))
    for group, model in _NESTED.items():
        yield from (_of(f"{group}.{name}", group, name) for name in model.model_fields if name not in _LEFT_OUT)
    yield from map(_of, _LATER)


def _of(heading: str, *path: str) -> Column[CellRecord]:
    """The column of a field, or of a part of one."""

    def value(cell: CellRecord) -> str:
        part: object = cell
        for name in path or (heading,):
            part = None if part is None else getattr(part, name)
        return _field(part)

    return Column(heading, value)


def _json(name: str, cell: CellRecord) -> str:
    values = getattr(cell, name)
    return _field(json.dumps(dict(values)) if values else None)


def _field(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    return repr(value)


def write(printed: RunView, output: Output) -> None:
    """Write CSV with a row for each cell."""
    output.text(render_csv(printed.run.record))
