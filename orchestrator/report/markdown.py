# SPDX-License-Identifier: GPL-2.0-only
"""Runs as GitHub-flavoured Markdown, in which text from a guest cannot become markup, a link or a mention."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from orchestrator.report.claims import ClaimsLayout, ClaimsPart, assess, decided_claims
from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import Grid
from orchestrator.report.run_sheets import NO_CELLS, sheets
from orchestrator.report.sheet import Sheet
from orchestrator.report.summary import summary
from orchestrator.report.table_report import ReportRegistry
from orchestrator.results.contract import RunRecord

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@<!-- -->", "#": "#<!-- -->"}
"""An empty comment breaks mentions of people and issues."""
_LINKS = re.compile(r"(https?|ftp)://|www\.", re.IGNORECASE)


def render_markdown(run: RunRecord, registry: ReportRegistry, claims: ClaimsLayout = decided_claims) -> str:
    """A run's summary, tables and claims as Markdown. Text from a guest cannot become markup, a link or a mention."""
    head = [f"Run `{run.run}`.", *([] if run.cells else [NO_CELLS])]
    parts = list(map(claims, assess(run, registry)))
    return render_sheets(run.experiment, sheets(run, registry), parts, summary(run, registry), head)


def render_sheets(
    title: str,
    sheets: Sequence[Sheet],
    claims: Sequence[ClaimsPart] = (),
    sentences: Sequence[str] = (),
    head: Sequence[str] = (),
) -> str:
    """A summary's sentences, sheets and claims as Markdown."""
    parts = [f"# {escaped(title)}", *head]
    if sentences:
        parts.append("\n".join(f"- {escaped(sentence)}" for sentence in sentences))
    parts += [part for sheet in sheets for part in _markdown_sheet(sheet)]
    parts += [part for claim in claims for part in _markdown_claims(claim)]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """One line of Markdown that shows exactly ``text`` within a paragraph, heading or table."""
    return inert(re.sub(r"([\\`*_\[\]|~$])", r"\\\1", " ".join(text.splitlines())))


def inert(line: str) -> str:
    """The line as HTML without markup, mentions and links."""
    line = re.sub("[&<>@#]", lambda match: _ENTITIES[match[0]], line)
    return _LINKS.sub(lambda match: match[0].replace(":", "&#58;").replace(".", "&#46;"), line)


def paragraph(*lines: str) -> str:
    """Escaped lines with line breaks, which cannot begin a list or a rule."""
    return "  \n".join(re.sub(r"^(\s*\d*)([-+=.)])", r"\1\\\2", escaped(line)) for line in lines)


def _markdown_sheet(sheet: Sheet) -> Iterator[str]:
    yield f"## {escaped(sheet.title)}"
    yield paragraph(*sheet.facts)
    yield grid_table(sheet.grid)
    yield paragraph(*sheet.sentences)
    yield from map(markdown_footnote, sheet.footnotes)
    for proofs in sheet.proofs:
        rows = [["probe", "mechanism", "bytes at the probe point", "checked"], ["---"] * 4]
        rows += [
            [escaped(proof.name), escaped(proof.mechanism), f"`{proof.live}`", escaped(", ".join(proof.facts))]
            for proof in proofs.proofs
        ]
        yield f"### {escaped(proofs.place)}\n\n" + "\n".join(map(_table_row, rows))


def markdown_footnote(footnote: Footnote) -> str:
    """A footnote with its mark; all lines but the first are a block of code."""
    first, *continued = footnote.text.splitlines()
    mark = "" if footnote.mark is None else f"\\[{footnote.mark}\\] "
    return mark + paragraph(first) + ("\n\n" + quoted(continued) if continued else "")


def grid_table(grid: Grid) -> str:
    """A grid as a Markdown table, with an empty row between blocks."""
    blank = [""] * len(grid.headings)
    rows = [["", *grid.headings], ["---", *("---:" for _ in grid.headings)]]
    for index, block in enumerate(grid.blocks):
        if index:
            rows.append(["", *blank])
        for row in block:
            styles = row.style.split()
            slanted = "*" if "italic" in styles else ""
            mark = f"**{slanted}" if "bold" in styles and row.label else slanted
            # Markdown drops spaces at the beginning of a label.
            label = f"{mark}{'&nbsp;' * row.depth}{escaped(row.label)}{mark}"
            rows.append([label, *(f"{slanted}{escaped(cell)}{slanted}" if cell else "" for cell in row.cells)])
    rows[0] = [escaped(text) for text in rows[0]]
    return "\n".join(map(_table_row, rows))


def _table_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.strip() for cell in cells) + " |"


def quoted(lines: Sequence[str], language: str = "text") -> str:
    """A fenced code block, whose fence is longer than any in the lines."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])


def _markdown_claims(part: ClaimsPart) -> Iterator[str]:
    yield f"## {escaped(part.title)}"
    for statement in part.statements:
        yield f"**{statement.verdict.capitalize()}**: {escaped(statement.sentence)}"
        if statement.grid is not None:
            yield grid_table(statement.grid)
        if statement.remarks:
            yield paragraph(*statement.remarks)
    if part.sentences:
        yield paragraph(*part.sentences)
