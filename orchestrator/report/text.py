# SPDX-License-Identifier: GPL-2.0-only
"""Runs as text: tables for a terminal, GitHub-flavoured Markdown, and a summary of three sentences."""

from __future__ import annotations

import io
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from rich.console import Console
from rich.text import Text

from orchestrator.plain_text import counted, cut, shown
from orchestrator.report.chart import IN_ASCII
from orchestrator.report.claims import Assessment, ClaimsLayout, ClaimsPart, Verdict, assess, decided_claims
from orchestrator.report.kind import ReportRegistry, run_tables
from orchestrator.report.sheet import GAP, Footnote, Grid, Highlight, ProofList, Rank, Sheet, by_reason, shared_key
from orchestrator.results.contract import RunRecord
from orchestrator.results.parameters import IMPLIED_OPTIONS, USUAL_PARAMETERS

_LONG = 150
"""The length from which a repeated reason is replaced by a reference."""


def sheets(run: RunRecord, registry: ReportRegistry) -> list[Sheet]:
    """The run's tables in order, in the layouts of their benchmark kinds.

    A long reason of an earlier table's footnote is replaced by a reference to it.
    """
    tables = [kind.sheet(panels) for kind, panels in run_tables(run, registry)]
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


_NAMED = 8


def measured_by(run: RunRecord) -> str | None:
    """``Measured by a fleet: a-1 12 cells, a-2 12 cells.``; None without a fleet."""
    cells = Counter(cell.worker for cell in run.cells if cell.worker is not None)
    if not cells:
        return None
    named = [f"{name} {counted(count, 'cell')}" for name, count in sorted(cells.items())]
    here = sum(cell.worker is None for cell in run.cells)
    here_too = [f"{counted(here, 'cell')} by this machine"] if here else []
    return f"Measured by a fleet: {', '.join([*shown(named, _NAMED, '{} more workers'), *here_too])}."


def of_kernels(run: RunRecord) -> Iterator[str]:
    """Sentences on kernels with parameters and options of their own: what the lab passes, and what came along."""
    usual = dict.fromkeys(filter(None, map(USUAL_PARAMETERS.of, run.cells)))
    yield from (
        f"Every kernel boots with {parameters}; its own parameters replace those of the same name."
        for parameters in usual
    )
    implied = {cell.kernel: options for cell in run.cells if (options := IMPLIED_OPTIONS.of(cell)) is not None}
    yield from (f"The options of {kernel} also set {found}." for kernel, found in implied.items())


# The summary has the first sentence of each rank, in the order of the ranks: failed cells, failed claims, differences
# between kernels, the largest overhead, the comparison with published figures, undecided differences. If fewer than
# three ranks have a sentence, their next ones follow.

SENTENCES = 3
_REASONS = 3
_LONGEST_REASON = 160


def summary(run: RunRecord, registry: ReportRegistry) -> list[str]:
    """At most three sentences on a run, the most important first, then those on its kernels and a fleet's workers."""
    workers = measured_by(run)
    sentences = most_important(
        [
            *_without_number(run),
            *(finding for assessment in assess(run, registry) for finding in contradicted(assessment)),
            *(finding for kind, panels in run_tables(run, registry) for finding in kind.findings(panels)),
        ]
    )
    return [*sentences, *of_kernels(run), *([] if workers is None else [workers])]


def most_important(findings: Iterable[Highlight]) -> list[str]:
    """The distinct sentences by the rule above."""
    by_rank: dict[Rank, list[Highlight]] = {}
    for finding in findings:
        by_rank.setdefault(finding.rank, []).append(finding)
    in_order = [sorted(of_rank, key=lambda highlight: -highlight.weight) for _, of_rank in sorted(by_rank.items())]
    chosen = [of_rank[0] for of_rank in in_order] + [highlight for of_rank in in_order for highlight in of_rank[1:]]
    kept = list(dict.fromkeys(highlight.sentence for highlight in chosen))[:SENTENCES]
    ranks = {highlight.sentence: highlight.rank for highlight in chosen}
    return sorted(kept, key=lambda sentence: ranks[sentence])


def contradicted(assessment: Assessment) -> Iterator[Highlight]:
    """The number of a document's claims that do not hold, and the first of them with its figure."""
    decided = [outcome for outcome in assessment.outcomes if outcome.verdict in (Verdict.HOLDS, Verdict.FAILS)]
    failing = [outcome for outcome in decided if outcome.verdict is Verdict.FAILS]
    if not failing:
        return
    column, wrong = next(
        (column, figure) for column in failing[0].columns for figure in column.measured if figure.holds is False
    )
    claim = failing[0].claim
    yield Highlight(
        Rank.CONTRADICTED,
        f"Claims of {claim.document} that do not hold: {len(failing)} of {len(decided)} decided ones. "
        f"The first: {claim.statement} ({column.name}: {wrong.label} = {wrong.text})",
        len(failing) / len(decided),
    )


def _without_number(run: RunRecord) -> Iterator[Highlight]:
    """The failed cells with the most frequent reason; skipped and unsupported cells by reason."""
    failed = by_reason(cell for cell in run.cells if cell.status == "failed")
    if failed:
        most = max(failed, key=len)
        count = sum(map(len, failed))
        first = most[0].id
        if count > 1:
            all_of = "all" if len(most) == count else f"{len(most)} of them"
            first = f"the first {first}" if len(most) == 1 else f"{all_of} for the same reason, the first {first}"
        how_many = f"Failed: {count} of {counted(len(run.cells), 'cell')}"
        yield Highlight(Rank.FAILED, f"{how_many}, {first}: {cut(most[0].first_line, _LONGEST_REASON)}")
    other_cells = by_reason(cell for cell in run.cells if cell.status in ("skipped", "unsupported"))
    if other_cells:
        rank = Rank.OTHER if any(cell.status == "ok" for cell in run.cells) else Rank.FAILED
        by_status = Counter(cell.status for group in other_cells for cell in group)
        states = ", ".join(f"{count} {status}" for status, count in by_status.items())
        reasons = []
        for group in sorted(other_cells, key=len, reverse=True):
            which = group[0].id if len(group) == 1 else counted(len(group), "cell")
            reasons.append(f"{which}: {cut(group[0].first_line, _LONGEST_REASON)}")
        more = f"; {counted(len(reasons) - _REASONS, 'more reason')}" if len(reasons) > _REASONS else ""
        how_many = f"Without a number: {by_status.total()} of {counted(len(run.cells), 'cell')} ({states})"
        yield Highlight(rank, f"{how_many}. {'; '.join(reasons[:_REASONS])}{more}.")


NO_CELLS = "No cell of this run has an outcome yet."
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
