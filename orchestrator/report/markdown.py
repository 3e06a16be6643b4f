# SPDX-License-Identifier: GPL-2.0-only
"""A run as GitHub-flavoured Markdown: the same tables, notes and claims as on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from orchestrator.report.claims import assess
from orchestrator.report.claims_layout import ClaimsLayout, ClaimsPart, Statement, decided_claims
from orchestrator.report.evidence import ProofList
from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import Grid, Row
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.sheet import Sheet
from orchestrator.report.sheets import sheets
from orchestrator.report.summary import summary
from orchestrator.report.table import NO_CELLS
from orchestrator.results.contract import RunRecord

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@<!-- -->", "#": "#<!-- -->"}
"""An empty comment breaks a mention of a person or an issue."""
_LINKS = re.compile(r"(https?|ftp)://|www\.", re.IGNORECASE)


def render_markdown(run: RunRecord, registry: ReportRegistry, claims: ClaimsLayout = decided_claims) -> str:
    """Return a run's summary, tables and claims. Text from a guest appears as text: no markup, link or mention."""
    parts = [f"# {escaped(run.experiment)}\n\nRun `{run.run}`."]
    if not run.cells:
        parts.append(NO_CELLS)
    parts += _summary(summary(run, registry))
    for sheet in sheets(run, registry):
        parts += _sheet(sheet)
    for assessment in assess(run, registry):
        parts += _claims(claims(assessment, run.run))
    return "\n\n".join(parts) + "\n"


def render_sheets(
    title: str, sheets: Sequence[Sheet], claims: Sequence[ClaimsPart] = (), sentences: Sequence[str] = ()
) -> str:
    """Return a summary's sentences, sheets that are of no run's tables, and the outcome of claims, in the same way."""
    parts = [*_summary(sentences)]
    parts += [part for sheet in sheets for part in _sheet(sheet)]
    parts += [part for one in claims for part in _claims(one)]
    return "\n\n".join([f"# {escaped(title)}", *parts]) + "\n"


def _summary(sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield "\n".join(f"- {escaped(sentence)}" for sentence in sentences)


def escaped(text: str) -> str:
    """Return ``text`` as one line of Markdown that shows exactly it, within a paragraph, heading or table."""
    line = " ".join(text.splitlines())
    line = re.sub(r"([\\`*_\[\]|~$])", r"\\\1", line)
    line = re.sub("[&<>@#]", lambda found: _ENTITIES[found[0]], line)
    return _LINKS.sub(lambda found: found[0].replace(":", "&#58;").replace(".", "&#46;"), line)


def paragraph(*lines: str) -> str:
    """Set lines below each other, with a list's or a rule's first character escaped."""
    return "  \n".join(re.sub(r"^(\s*\d*)([-+=.)])", r"\1\\\2", escaped(line)) for line in lines)


def _sheet(sheet: Sheet) -> Iterator[str]:
    yield f"## {escaped(sheet.title)}"
    yield paragraph(*sheet.facts)
    yield grid_table(sheet.grid)
    yield paragraph(*sheet.sentences)
    for footnote in sheet.footnotes:
        yield _footnote(footnote)
    for proofs in sheet.proofs:
        yield _evidence(proofs)


def grid_table(grid: Grid) -> str:
    """Return a grid as a table, with an empty row between two blocks."""
    blank = [""] * len(grid.headings)
    rows = [["", *grid.headings], ["---", *("---:" for _ in grid.headings)]]
    for index, block in enumerate(grid.blocks):
        if index:
            rows.append(["", *blank])
        for row in block:
            bold = "**" if row.style == "bold" and row.label else ""
            rows.append([f"{bold}{_label(row)}{bold}", *(escaped(cell) for cell in row.cells)])
    rows[0] = [escaped(text) for text in rows[0]]
    return "\n".join(map(_table_row, rows))


def _label(row: Row) -> str:
    """A row's label; Markdown drops spaces at the beginning of one."""
    return "&nbsp;" * row.depth + escaped(row.label)


def _table_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.strip() for cell in cells) + " |"


def _footnote(footnote: Footnote) -> str:
    first, *others = footnote.text.splitlines()
    mark = "" if footnote.mark is None else f"\\[{footnote.mark}\\] "
    return mark + paragraph(first) + ("\n\n" + quoted(others) if others else "")


def quoted(lines: Sequence[str], language: str = "text") -> str:
    """Set the lines as they are; the fence is longer than any in them."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])


def _evidence(proofs: ProofList) -> str:
    rows = [["probe", "mechanism", "bytes at the probe point", "checked"], ["---"] * 4]
    rows += [
        [escaped(proof.name), escaped(proof.mechanism), f"`{proof.live}`", escaped(", ".join(proof.facts))]
        for proof in proofs.proofs
    ]
    return f"### {escaped(proofs.place)}\n\n" + "\n".join(map(_table_row, rows))


def _claims(part: ClaimsPart) -> Iterator[str]:
    yield f"## {escaped(part.title)}"
    for statement in part.statements:
        yield from _statement(statement)
    if part.sentences:
        yield paragraph(*part.sentences)


def _statement(statement: Statement) -> Iterator[str]:
    yield f"**{statement.verdict.capitalize()}**: {escaped(statement.sentence)}"
    if statement.grid is not None:
        yield grid_table(statement.grid)
    if statement.remarks:
        yield paragraph(*statement.remarks)
