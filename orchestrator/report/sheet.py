# SPDX-License-Identifier: GPL-2.0-only
"""Tables for all output formats: grids, figures, findings, evidence, footnotes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

from rich.text import Text

from orchestrator.catalog.probes import BASELINE
from orchestrator.plain_text import counted, shown
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.results.parameters import ACCELERATOR

GAP = "  "
_HEADING_WIDTHS = (18, 12, 9)
"""Widths to wrap headings at, widest first."""


@dataclass(frozen=True)
class Row:
    """A label and a text per column, in a rich ``style``; ``depth`` in a tree indents the label."""

    label: str
    cells: Sequence[str]
    style: str = ""
    depth: int = 0

    @property
    def indented(self) -> str:
        return " " * self.depth + self.label


@dataclass(frozen=True)
class Grid:
    """Columns under ``headings``, and ``blocks`` of rows with a rule above each.

    Each group of ``together`` columns stays on one line. With ``narrowest``, labels may be folded to so many
    characters if the columns then fit on fewer lines.
    """

    headings: Sequence[str]
    blocks: Sequence[Sequence[Row]]
    together: int = 1
    narrowest: int | None = None

    def lines(self, width: int, rule: str = "─") -> Iterator[Text]:
        """The grid in ``width`` characters, with rules of the character ``rule``.

        Columns that do not fit follow below with the same labels. Each part has at least one column.
        """
        rows = [row for block in self.blocks for row in block]
        whole = max(len(row.indented) for row in rows)
        word = max(len(piece) + row.depth + 1 for row in rows for piece in _pieces(row.label))
        narrowest = max(self.narrowest or 0, word)
        folded = [] if self.narrowest is None else [_Fitted(self, fold, 0).needed for fold in _HEADING_WIDTHS]
        widths = [whole, *(min(whole, max(narrowest, width - needed)) for needed in folded)]
        # The widest labels and headings with the fewest parts.
        fitted = [(labels, _Fitted(self, fold, width - labels)) for labels in widths for fold in _HEADING_WIDTHS]
        labels, fitting = min(fitted, key=lambda pair: (pair[1].excess, len(pair[1].parts)))
        for index, part in enumerate(fitting.parts):
            if index:
                yield Text()
            yield from self._part(part, fitting, labels, rule)

    def _part(self, columns: Sequence[int], fitted: _Fitted, labels: int, rule: str) -> Iterator[Text]:
        widths = [fitted.widths[column] for column in columns]
        headings = [fitted.headings[column] for column in columns]
        height = max(len(heading) for heading in headings)
        for line in range(height):
            # Align headings at the bottom, next to their figures.
            words = [heading[line - height] if line - height >= -len(heading) else "" for heading in headings]
            yield _line("", words, labels, widths, "bold")
        for block in self.blocks:
            yield Text(rule * (labels + sum(len(GAP) + width for width in widths)), style="dim")
            for row in block:
                label, *rest = _folded(row, labels)
                yield _line(label, [row.cells[column] for column in columns], labels, widths, row.style)
                yield from (Text(line, style=row.style) for line in rest)


class _Fitted:
    """A grid with headings folded to ``fold`` characters, split into parts of ``width`` besides the labels."""

    def __init__(self, grid: Grid, fold: int, width: int) -> None:
        self.headings = [_wrapped(heading, fold) for heading in grid.headings]
        self.widths = [
            max(len(text) for text in [*heading, *(row.cells[column] for block in grid.blocks for row in block)])
            for column, heading in enumerate(self.headings)
        ]
        self.needed = sum(len(GAP) + column_width for column_width in self.widths)
        self.parts: list[list[int]] = []
        self.excess = 0
        used = width
        for start in range(0, len(self.widths), grid.together):
            columns = range(start, min(start + grid.together, len(self.widths)))
            needed = sum(len(GAP) + self.widths[column] for column in columns)
            self.excess = max(self.excess, needed - width)
            if not self.parts or used + needed > width:
                self.parts.append([])
                used = 0
            self.parts[-1].extend(columns)
            used += needed


def _pieces(text: str) -> list[str]:
    """What a name may be split into: parts that end with a slash, an underscore, a dot, a space and the like."""
    return [piece for piece in re.split(r"(?<=[/_,:+= -])|(?<=\.)(?!\d)", text) if piece]


def _wrapped(heading: str, width: int) -> list[str]:
    """A heading in lines of ``width``, or of its longest word: no word is cut."""
    lines: list[str] = []
    for line in textwrap.wrap(heading, width, break_long_words=False):
        begun = len(lines)
        for piece in [line] if len(line) <= width else _pieces(line):
            if len(lines) > begun and len(lines[-1]) + len(piece) <= width:
                lines[-1] += piece
            else:
                lines.append(piece)
    return [line.rstrip() for line in lines]


def _folded(row: Row, width: int) -> list[str]:
    """The label in lines of ``width``, split after a slash, an underscore or a dot if possible."""
    if len(row.indented) <= width:
        return [row.indented]
    indent = " " * row.depth
    lines, rest = [], row.label
    while len(rest) > width - len(indent):
        room = rest[: width - len(indent)]
        ends = (max(room.rfind(mark) for mark in marks) + 1 for marks in ("/_. ", "+-:=,"))
        end = next(filter(None, ends), len(room))
        lines.append(indent + rest[:end].rstrip())
        indent, rest = " " * (row.depth + 1), rest[end:]
    return [*lines, indent + rest]


def _line(label: str, cells: Sequence[str], labels: int, widths: Sequence[int], style: str) -> Text:
    figures = "".join(GAP + cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return Text((label.ljust(labels) + figures).rstrip(), style=style)


NOTHING = "-"
UNDECIDED = "none"
"""Printed in place of a ratio if the host's drift hides the effect."""
BELOW_ZERO = "(< 0)"
"""Printed in place of a ratio to a published overhead below zero."""
COUNTED = "instructions"
"""The unit of exact figures."""


def number(value: float) -> str:
    """A measured figure: whole, or with up to four decimals, which is enough for a count divided by 10 000 calls.

    A figure that only rounds to a whole number keeps its zeros, so that it does not look exact.
    """
    if value.is_integer():
        return str(int(value))
    text = f"{value:.4f}"
    return text if text.endswith(".0000") else text.rstrip("0")


def figure(value: float | None, unit: str) -> str:
    """A measured figure in ``unit``: exact if counted, to a tenth if timed."""
    if value is None:
        return NOTHING
    if unit == COUNTED or value.is_integer():
        return number(value)
    tenths = f"{value:.1f}"
    return "0.0" if tenths == "-0.0" else tenths


def signed_figure(change: float, unit: str) -> str:
    """A change in ``unit`` with its sign."""
    text = figure(change, unit)
    return f"+{text}" if change > 0 else text


def published_figure(value: float | None) -> str:
    """A published figure, or a dash."""
    return NOTHING if value is None else number(value)


def ratio_figure(value: float | None, base: float | None) -> str:
    """The ratio to two decimals; a dash unless ``base`` is positive, as some published overheads are not."""
    return NOTHING if value is None or base is None or base <= 0 else f"{value / base:.2f}"


def unit_name(unit: str) -> str:
    """A unit in the documents' spelling."""
    return "nsec" if unit == "ns" else unit


def clocked_unit(unit: str) -> str:
    """A unit with the clock that counts it: ``instructions``, or ``nsec of the wall clock``."""
    return unit if unit == COUNTED else f"{unit_name(unit)} of the wall clock"


_NAMED = 3
"""The most names that a sentence lists."""


class Rank(IntEnum):
    """The subject of a finding, the most important first."""

    FAILED = 0
    """Failed cells."""
    CONTRADICTED = 1
    """Figures that contradict a document."""
    DIFFERENT = 2
    """The largest difference between kernels."""
    LARGEST = 3
    """The largest overhead."""
    PUBLISHED = 4
    """The comparison with published figures."""
    UNDECIDED = 5
    """Differences no larger than those between equal runs."""
    OTHER = 6
    """Anything else: what was measured, and what could not be."""


@dataclass(frozen=True)
class Highlight:
    """A short sentence with figures. Within a rank, a larger ``weight`` is more important.

    The weight of a cost is its ratio to the baseline, which is comparable between units.
    """

    rank: Rank
    sentence: str
    weight: float = 0.0


def overhead_findings(
    cells: Sequence[CellRecord], name: Callable[[CellRecord], str], place: str = ""
) -> Iterator[Highlight]:
    """The largest overhead and undecided overheads, or a value if there is no overhead.

    ``name`` gives a cell's name in the table; ``place`` is the table's name, if there are several.
    """
    of_place = f", {place}" if place else ""
    measured = [cell for cell in cells if cell.value is not None]
    compared = [cell for cell in measured if cell.overhead is not None and (cell.overhead or cell.probe != BASELINE)]
    decided = [cell for cell in compared if cell.verdict is None]
    if decided:
        largest = max(decided, key=lambda cell: cell.overhead or 0.0)
        share = relative(largest)
        beside = "" if share is None else f" ({percent(share)})"
        most = "Largest overhead" if len(compared) > 1 else "Overhead"
        yield Highlight(Rank.LARGEST, f"{most}{of_place}: {name(largest)}, {cost(largest)}{beside}.", share or 0.0)
    hidden = [cell for cell in compared if cell.verdict is not None]
    if hidden:
        names = listed([name(cell) for cell in hidden])
        sentence = f"Not decided{of_place}: {names}; the difference is no larger than between equal runs."
        yield Highlight(Rank.UNDECIDED, sentence, len(hidden) / len(compared))
    if measured and not compared:
        first = measured[0]
        text = f"{name(first)}: {figure(first.value, first.unit)} {_per(first)}."
        yield Highlight(Rank.OTHER, f"{place}: {text}" if place else text)


def relative(cell: CellRecord) -> float | None:
    """A cell's overhead relative to its baseline; None without a positive one."""
    if cell.value is None or cell.overhead is None:
        return None
    base = cell.value - cell.overhead
    return cell.overhead / base if base > 0 else None


def cost(cell: CellRecord) -> str:
    """``1450 instructions a call``."""
    return f"{figure(cell.overhead, cell.unit)} {_per(cell)}"


def percent(share: float) -> str:
    """A share in percent, to three digits or whole."""
    value = 100 * share
    return f"{value:+.0f} %" if abs(value) >= 100 else f"{value:+.3g} %"


def listed(names: Iterable[str], most: int = _NAMED, rest: str = "{} others") -> str:
    """Distinct names in a sentence: ``a, b and c``, or the first ``most`` and the number of others.

    Semicolons separate names with commas.
    """
    known = list(dict.fromkeys(names))
    *first, last = known if len(known) == most + 1 else shown(known, most, rest)
    comma = "; " if any("," in name for name in (*first, last)) else ", "
    return f"{comma.join(first)} and {last}" if first else last


def _per(cell: CellRecord) -> str:
    return f"{unit_name(cell.unit)} {cell.metric.removeprefix('cost ').replace('per ', 'a ')}"


UNKNOWN = "unknown"
"""Printed in place of a count of traps that includes other processes' traps."""

_SHOWN_BYTES = 5  # as long as a jump


@dataclass(frozen=True)
class CellProof:
    """One cell's evidence: its name, the mechanism and live bytes at the probe point, and the checked facts."""

    name: str
    mechanism: str
    live: str
    facts: Sequence[str]


@dataclass(frozen=True)
class ProofList:
    """The proofs of cells at one place."""

    place: str
    proofs: Sequence[CellProof]


def hit_facts(evidence: Evidence) -> list[str]:
    """The facts of a counting pass, with or without a probe."""
    calls = counted(evidence.calls, "call")
    if evidence.mechanism == "none":
        return [f"no probe, {calls}"]
    each = f" x {evidence.hits_per_call}" if evidence.hits_per_call != 1 else ""
    facts = [f"{evidence.hits} hits = {calls}{each}"] if evidence.hits_per_call else [f"no hit in {calls}"]
    if evidence.others:
        facts.append(f"{counted(evidence.others, 'hit')} by others")
    if evidence.recorded is not None:
        facts.append(f"{evidence.recorded} events read back")
    if evidence.int3:
        facts.append(f"{number(evidence.int3 / evidence.hits)} int3 a hit")
    facts.append("bytes restored")
    if evidence.detour:
        facts.append(f"detour {evidence.detour}")
    if evidence.disturbed:
        facts.append(f"disturbed batches repeated: {evidence.disturbed}")
    return facts


def proof_lists(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> list[ProofList]:
    """The evidence of all cells that are ok, in their order; ``name`` gives a cell's name in the table."""
    proved = [(cell, cell.evidence) for cell in cells if cell.status == "ok" and cell.evidence]
    lists = []
    for (symbol, clocksource), group in groupby(proved, lambda pair: (pair[1].symbol, pair[1].clocksource)):
        proofs = []
        for cell, evidence in group:
            live = bytes.fromhex(evidence.probe_bytes)[:_SHOWN_BYTES].hex(" ")
            proofs.append(CellProof(name(cell), evidence.mechanism, live, hit_facts(evidence)))
        lists.append(ProofList(f"Evidence at {symbol} (clocksource {clocksource})", proofs))
    return lists


def traps_per_hit(cell: CellRecord) -> float | None:
    """Breakpoint traps per hit; None without hits or without a count of traps."""
    evidence = cell.evidence
    if cell.status != "ok" or evidence is None or evidence.int3 is None or not evidence.hits:
        return None
    return evidence.int3 / evidence.hits


def unknown_traps(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Iterator[str]:
    """A sentence on the valid cells whose traps are unknown because of other processes' hits."""
    hit = [cell for cell in cells if has_unknown_traps(cell)]
    if hit:
        foreign_hits = sum(cell.evidence.others or 0 for cell in hit if cell.evidence is not None)
        hits = counted(foreign_hits, "hit") if foreign_hits else "hits"
        yield (
            f"int3 a hit is {UNKNOWN} for {listed([name(cell) for cell in hit])}: QEMU's count of traps includes "
            f"{hits} by other processes."
        )


def has_unknown_traps(cell: CellRecord) -> bool:
    """Whether QEMU's count of a valid cell's traps includes hits by other processes.

    A module that does not count such hits has no count of traps if it is not a multiple of its hits.
    """
    evidence = cell.evidence
    if cell.status != "ok" or evidence is None or ACCELERATOR.of(cell) == "kvm":
        return False
    hits_by_others = bool(evidence.others) or (evidence.others is None and evidence.mechanism == "int3")
    return evidence.int3 is None and hits_by_others


_OF_ONE_BOOT = re.compile(r"\[ *\d+\.\d+\]|\b(?:0x)?[0-9a-f]{8,16}\b|\b[0-9a-f]{24}\b")
"""Parts of messages that differ between guests: log times, addresses, and cache keys."""


def shared_key(text: str) -> str:
    """A text without the parts that differ between guests."""
    return _OF_ONE_BOOT.sub("", text)


def by_reason(cells: Iterable[CellRecord]) -> list[Sequence[CellRecord]]:
    """The cells without a number, grouped by status and reason, in the order of the first cells."""
    groups: dict[tuple[str, str], list[CellRecord]] = {}
    for cell in cells:
        if cell.reason is not None:
            groups.setdefault((cell.status, shared_key(cell.reason)), []).append(cell)
    return list(groups.values())


@dataclass(frozen=True)
class Footnote:
    """A note of one or more lines; without ``mark`` on all numbers of the table.

    ``reason`` is the end of the text that notes of other tables may repeat, or empty.
    """

    mark: int | None
    text: str
    failure: bool = False
    reason: str = ""


class Footnotes:
    """The notes of a table's cells, numbered in the cells' order, without duplicates.

    ``name`` gives a cell's name in the table, ``remark`` the table's own note on a cell.
    """

    def __init__(
        self,
        cells: Sequence[CellRecord],
        name: Callable[[CellRecord], str],
        remark: Callable[[CellRecord], str | None],
    ) -> None:
        self._marks: dict[str, list[int]] = {cell.id: [] for cell in cells}
        self._notes: list[Footnote] = []
        concerned: dict[str, list[CellRecord]] = {}
        for cell in cells:
            table_note = remark(cell)
            for sentence in [*([table_note] if table_note else []), *cell.notes]:
                concerned.setdefault(sentence, []).append(cell)
        valid = [cell for cell in cells if cell.status == "ok"]
        for sentence, group in concerned.items():
            if len(group) >= len(valid) > 1:
                self._notes.append(Footnote(None, f"All: {sentence}"))
        without_number = {alike[0].id: alike for alike in by_reason(cells)}
        for cell in cells:
            alike = without_number.get(cell.id)
            if alike is not None:
                count = f" ({counted(len(alike), 'cell')})" if len(alike) > 1 else ""
                names = listed([name(alike_cell) for alike_cell in alike])
                self._add(alike, f"{names} {cell.status}{count}: ", cell.reason or "", failure=True)
            for sentence in [sentence for sentence, group in concerned.items() if group[0] is cell]:
                group = concerned[sentence]
                if not len(group) >= len(valid) > 1:
                    self._add(
                        group,
                        f"{listed([name(alike_cell) for alike_cell in group])}: ",
                        sentence,
                        failure=False,
                    )

    def all(self) -> Sequence[Footnote]:
        return self._notes

    def marks(self, cell: CellRecord) -> str:
        """The marks of a cell's notes, `` [1] [2]``, or an empty text."""
        return "".join(f" [{mark}]" for mark in self._marks[cell.id])

    def _add(self, cells: Sequence[CellRecord], subject: str, reason: str, *, failure: bool) -> None:
        text = subject + reason
        known = {(note.text, note.failure): note.mark for note in self._notes if note.mark is not None}
        mark = known.get((text, failure))
        if mark is None:
            mark = len(known) + 1
            self._notes.append(Footnote(mark, text, failure, reason))
        for cell in cells:
            self._marks[cell.id].append(mark)


@dataclass(frozen=True)
class Sheet:
    """A table with its title, facts on the measurement, explanations (``sentences``), footnotes and evidence."""

    title: str
    facts: Sequence[str]
    grid: Grid
    sentences: Sequence[str]
    footnotes: Sequence[Footnote] = ()
    proofs: Sequence[ProofList] = ()


def shared_parts(names: Sequence[Sequence[str]]) -> Sequence[bool]:
    """For each part, whether it is equal in all names; empty if the names have different numbers of parts."""
    if len({len(name) for name in names}) != 1:
        return []
    return [len(set(column)) == 1 for column in zip(*names, strict=True)]
