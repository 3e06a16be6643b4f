# SPDX-License-Identifier: GPL-2.0-only
"""Tables, claims and summaries as text: in the width of a terminal, and in ASCII for a mail."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from itertools import chain

from rich.console import Console
from rich.text import Text

from orchestrator.report.chart import IN_ASCII
from orchestrator.report.claims import ClaimsLayout, ClaimsPart, Verdict, assess, decided_claims
from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import GAP
from orchestrator.report.proofs import ProofList
from orchestrator.report.run_sheets import NO_CELLS, sheets
from orchestrator.report.sheet import Sheet
from orchestrator.report.summary import summary
from orchestrator.report.table_report import ReportRegistry
from orchestrator.results.contract import RunRecord

_WIDEST_PROSE = 100
_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "yellow", Verdict.UNDECIDED: "dim", Verdict.UNKNOWN: "dim"}
_UNBROKEN = "\N{NO-BREAK SPACE}"


def print_table(
    run: RunRecord, console: Console, registry: ReportRegistry, claims: ClaimsLayout = decided_claims
) -> None:
    """Print a run's tables, claims and summary in the console's width.

    Prints plain text without colours, and ASCII if the console's encoding is not Unicode.
    """
    if not run.cells:
        console.print(NO_CELLS, soft_wrap=True)
        return
    parts = list(map(claims, assess(run, registry)))
    print_sheets(sheets(run, registry), console, parts, summary(run, registry), gap="\n\n")


def print_sheets(
    sheets: Sequence[Sheet],
    console: Console,
    claims: Sequence[ClaimsPart] = (),
    sentences: Sequence[str] = (),
    gap: str = "\n",
) -> None:
    """Print sheets, claims and a summary's sentences with a gap between them."""
    width = console.width
    parts = [*(_sheet(sheet, width) for sheet in sheets), *(_claims(part, width) for part in claims)]
    if sentences:
        lines = (_paragraph(f"- {sentence}", min(width, _WIDEST_PROSE), hanging="  ") for sentence in sentences)
        parts.append(chain([Text("Summary", style="bold")], *lines))
    for index, part in enumerate(parts):
        if index:
            console.print(gap, end="")
        for line in part:
            if console.options.ascii_only:
                line.plain = line.plain.translate(IN_ASCII).encode("ascii", "replace").decode("ascii")
            # The terminal wraps long lines; cutting them would lose figures.
            console.print(line, soft_wrap=True)


def ascii_text(sheets: Sequence[Sheet], width: int) -> str:
    """Sheets as plain text in ASCII, as a mail has them."""
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    print_sheets(sheets, Console(file=file, width=width, force_terminal=False, color_system=None))
    file.seek(0)
    return "\n".join(line.rstrip() for line in file.read().splitlines())


def _sheet(sheet: Sheet, width: int) -> Iterator[Text]:
    prose = min(width, _WIDEST_PROSE)
    yield from _paragraph(sheet.title, prose, style="bold")
    for fact in sheet.facts:
        yield from _paragraph(fact, prose)
    yield Text()
    yield from sheet.grid.lines(width)
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
    first, *continued = footnote.text.splitlines()
    yield from _paragraph(mark + first, width, hanging=hanging, style="red" if footnote.failure else "")
    for line in continued:
        yield from _paragraph(hanging + line, width, hanging=hanging)


_NARROWEST = 24
"""Columns of a fact beside its cell's name; with fewer it is below."""


def _evidence(proofs: ProofList, width: int) -> Iterator[Text]:
    names = max((len(proof.name) for proof in proofs.proofs), default=0)
    mechanisms = max((len(proof.mechanism) for proof in proofs.proofs), default=0)
    yield Text()
    yield from _paragraph(proofs.place, width, style="bold")
    for proof in proofs.proofs:
        start = f"  {proof.name:{names}}{GAP}{proof.mechanism:{mechanisms}}{GAP}"
        # One fact stays on one line.
        facts = ", ".join(fact.replace(" ", _UNBROKEN) for fact in proof.facts)
        hanging = len(start) if len(start) + _NARROWEST <= width else 4
        yield from _paragraph(f"{start}{proof.live}{GAP}{facts}", width, hanging=" " * hanging)


def _claims(part: ClaimsPart, width: int) -> Iterator[Text]:
    prose = min(width, _WIDEST_PROSE)
    yield from _paragraph(part.title, prose, style="bold")
    gap = True
    for statement in part.statements:
        if gap or statement.grid is not None:
            yield Text()
        verdict, style = f"{statement.verdict}: {statement.sentence}", _STYLES[statement.verdict]
        yield from _paragraph(verdict, prose, hanging="  ", style=style)
        if statement.grid is not None:
            for line in statement.grid.lines(max(width - 4, 1)):
                yield Text("    ") + line if line.plain else line
        for sentence in statement.remarks:
            yield from _paragraph(f"  {sentence}", prose, hanging="  ")
        gap = statement.grid is not None
    if part.sentences:
        yield Text()
    for sentence in part.sentences:
        yield from _paragraph(sentence, prose, hanging="  ")


def _paragraph(text: str, width: int, *, hanging: str = "", style: str = "") -> Iterator[Text]:
    for line in textwrap.wrap(
        text, width, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=False
    ) or [""]:
        yield Text(line.replace(_UNBROKEN, " "), style=style)
