# SPDX-License-Identifier: GPL-2.0-only
"""A run as tables for a terminal, in the layout of the documents it is compared with."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from orchestrator.report.claims import assess
from orchestrator.report.claims_layout import ClaimsLayout, ClaimsPart, Statement, decided_claims
from orchestrator.report.evidence import ProofList
from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import GAP
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.sheet import Sheet
from orchestrator.report.sheets import sheets
from orchestrator.report.summary import summary
from orchestrator.results.contract import RunRecord

NO_CELLS = "No cell of this run has an outcome yet."
_WIDEST_PROSE = 100
_UNBROKEN = "\N{NO-BREAK SPACE}"


def print_table(
    run: RunRecord, console: Console, registry: ReportRegistry, claims: ClaimsLayout = decided_claims
) -> None:
    """Print a run's tables, the outcome of the documents' claims and a summary, set for the console's width.

    They are plain text where the console has no colours, and plain ASCII where its encoding is not a Unicode one.
    """
    if not run.cells:
        console.print(NO_CELLS, soft_wrap=True)
        return
    parts = [claims(assessment, run.run) for assessment in assess(run, registry)]
    for index, lines in enumerate(_parts(console, sheets(run, registry), parts, summary(run, registry))):
        if index:
            console.print("\n")
        _print(lines, console)


def print_sheets(
    sheets: Sequence[Sheet], console: Console, claims: Sequence[ClaimsPart] = (), sentences: Sequence[str] = ()
) -> None:
    """Print sheets that are of no run's tables, the outcome of claims and a summary's sentences, in the same way."""
    for index, lines in enumerate(_parts(console, sheets, claims, sentences)):
        if index:
            console.print()
        _print(lines, console)


def _parts(
    console: Console, sheets: Sequence[Sheet], claims: Sequence[ClaimsPart], sentences: Sequence[str]
) -> Iterator[Iterator[Text]]:
    width, rule = console.width, "-" if console.options.ascii_only else "─"
    yield from (_sheet(sheet, width, rule) for sheet in sheets)
    yield from (_claims(part, width, rule) for part in claims)
    if sentences:
        yield _summary(sentences, min(width, _WIDEST_PROSE))


def _print(lines: Iterable[Text], console: Console) -> None:
    for line in lines:
        if console.options.ascii_only:
            line.plain = line.plain.encode("ascii", "replace").decode("ascii")
        # The terminal wraps a line that is too long: cutting it would lose figures.
        console.print(line, soft_wrap=True)


def _sheet(sheet: Sheet, width: int, rule: str) -> Iterator[Text]:
    prose = min(width, _WIDEST_PROSE)
    yield from _paragraph(sheet.title, prose, style="bold")
    for fact in sheet.facts:
        yield from _paragraph(fact, prose)
    yield Text()
    yield from sheet.grid.lines(width, rule)
    yield Text()
    for sentence in sheet.sentences:
        yield from _paragraph(sentence, prose)
    for footnote in sheet.footnotes:
        yield from _footnote(footnote, prose)
    for proofs in sheet.proofs:
        yield from _evidence(proofs, prose)


def _footnote(footnote: Footnote, width: int) -> Iterator[Text]:
    yield Text()
    mark = "" if footnote.mark is None else f"[{footnote.mark}] "
    hanging = " " * len(mark)
    first, *others = footnote.text.splitlines()
    yield from _paragraph(mark + first, width, hanging=hanging, style="red" if footnote.failure else "")
    for line in others:
        yield from _paragraph(hanging + line, width, hanging=hanging)


def _evidence(proofs: ProofList, width: int) -> Iterator[Text]:
    names = max((len(proof.name) for proof in proofs.proofs), default=0)
    mechanisms = max((len(proof.mechanism) for proof in proofs.proofs), default=0)
    yield Text()
    yield from _paragraph(proofs.place, width, style="bold")
    for proof in proofs.proofs:
        start = f"  {proof.name:{names}}{GAP}{proof.mechanism:{mechanisms}}{GAP}"
        # One fact stays on one line.
        facts = ", ".join(fact.replace(" ", _UNBROKEN) for fact in proof.facts)
        yield from _paragraph(f"{start}{proof.live}{GAP}{facts}", width, hanging=" " * len(start))


def _claims(part: ClaimsPart, width: int, rule: str) -> Iterator[Text]:
    prose = min(width, _WIDEST_PROSE)
    yield from _paragraph(part.title, prose, style="bold")
    gap = True
    for statement in part.statements:
        if gap or statement.grid is not None:
            yield Text()
        yield from _statement(statement, width, prose, rule)
        gap = statement.grid is not None
    if part.sentences:
        yield Text()
    for sentence in part.sentences:
        yield from _paragraph(sentence, prose, hanging="  ")


def _summary(sentences: Sequence[str], width: int) -> Iterator[Text]:
    yield Text("Summary", style="bold")
    for sentence in sentences:
        yield from _paragraph(f"- {sentence}", width, hanging="  ")


def _statement(statement: Statement, width: int, prose: int, rule: str) -> Iterator[Text]:
    yield from _paragraph(f"{statement.verdict}: {statement.sentence}", prose, hanging="  ", style=statement.style)
    if statement.grid is not None:
        for line in statement.grid.lines(max(width - 4, 1), rule):
            yield Text("    ") + line if line.plain else line
    for sentence in statement.remarks:
        yield from _paragraph(f"  {sentence}", prose, hanging="  ")


def _paragraph(text: str, width: int, *, hanging: str = "", style: str = "") -> Iterator[Text]:
    for line in textwrap.wrap(
        text, width, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=False
    ) or [""]:
        yield Text(line.replace(_UNBROKEN, " "), style=style)
