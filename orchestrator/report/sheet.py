# SPDX-License-Identifier: GPL-2.0-only
"""A printed table in any format: grid, figures, findings, evidence, footnotes."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby

from rich.text import Text

from orchestrator.catalog.probes import BASELINE
from orchestrator.plain_text import counted, shown
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.results.parameters import ACCELERATOR
from orchestrator.results.statistics import ratio

GAP = "  "
_HEADING_WIDTHS = (18, 12, 9)
"""Widths at which headings may be wrapped, widest first."""


@dataclass(frozen=True)
class Row:
    """One row: a label and a text for each column, set in a rich ``style``.

    ``depth`` is how far down a tree it is, by which its label is indented.
    """

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

    Each run of ``together`` columns stays on one line. With ``narrowest``, labels are folded down to so many characters
    where the columns fit on fewer lines then.
    """

    headings: Sequence[str]
    blocks: Sequence[Sequence[Row]]
    together: int = 1
    narrowest: int | None = None

    def lines(self, width: int, rule: str) -> Iterator[Text]:
        """Set the grid in ``width`` characters, with rules made of the character ``rule``.

        Columns that do not fit follow below, under the same labels. Each part has at least one column.
        """
        whole = max(len(row.indented) for block in self.blocks for row in block)
        folded = [] if self.narrowest is None else [_Fitted(self, fold, 0).needed for fold in _HEADING_WIDTHS]
        widths = [whole, *(min(whole, max(self.narrowest or 0, width - needed)) for needed in folded)]
        # The widest labels and headings that leave the grid in the fewest parts.
        fitted = [(one, _Fitted(self, fold, width - one)) for one in widths for fold in _HEADING_WIDTHS]
        labels, fitting = min(fitted, key=lambda one: (one[1].overflows, len(one[1].parts)))
        for index, part in enumerate(fitting.parts):
            if index:
                yield Text()
            yield from self._part(part, fitting, labels, rule)

    def _part(self, columns: Sequence[int], fitted: _Fitted, labels: int, rule: str) -> Iterator[Text]:
        widths = [fitted.widths[column] for column in columns]
        headings = [fitted.headings[column] for column in columns]
        height = max(len(heading) for heading in headings)
        for line in range(height):
            # A short heading stands directly above its figures.
            words = [heading[line - height] if line - height >= -len(heading) else "" for heading in headings]
            yield _line("", words, labels, widths, "bold")
        for block in self.blocks:
            yield Text(rule * (labels + sum(len(GAP) + width for width in widths)), style="dim")
            for row in block:
                label, *rest = _folded(row, labels)
                yield _line(label, [row.cells[column] for column in columns], labels, widths, row.style)
                yield from (Text(line, style=row.style) for line in rest)


class _Fitted:
    """A grid with its headings folded to ``fold`` characters, parted into lines of ``width`` behind the labels."""

    def __init__(self, grid: Grid, fold: int, width: int) -> None:
        self.headings = [textwrap.wrap(heading, fold) for heading in grid.headings]
        self.widths = [
            max(len(text) for text in [*heading, *(row.cells[column] for block in grid.blocks for row in block)])
            for column, heading in enumerate(self.headings)
        ]
        self.needed = sum(len(GAP) + one for one in self.widths)
        self.parts: list[list[int]] = []
        self.overflows = False
        used = width
        for start in range(0, len(self.widths), grid.together):
            columns = range(start, min(start + grid.together, len(self.widths)))
            needed = sum(len(GAP) + self.widths[column] for column in columns)
            self.overflows |= needed > width
            if not self.parts or used + needed > width:
                self.parts.append([])
                used = 0
            self.parts[-1].extend(columns)
            used += needed


def _folded(row: Row, width: int) -> list[str]:
    """The label in lines of a width, parted behind a slash, an underscore or a dot if there is one."""
    if len(row.indented) <= width:
        return [row.indented]
    indent = " " * row.depth
    lines, rest = [], row.label
    while len(rest) > width - len(indent):
        room = rest[: width - len(indent)]
        end = max(room.rfind(mark) for mark in "/_. ") + 1 or len(room)
        lines.append(indent + rest[:end].rstrip())
        indent, rest = " " * (row.depth + 1), rest[end:]
    return [*lines, indent + rest]


def _line(label: str, cells: Sequence[str], labels: int, widths: Sequence[int], style: str) -> Text:
    figures = "".join(GAP + cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return Text((label.ljust(labels) + figures).rstrip(), style=style)


NOTHING = "-"
UNDECIDED = "none"
"""Printed in place of a ratio where the host's drift hides the effect."""
BELOW_ZERO = "(< 0)"
"""Printed in place of a ratio to a published overhead below zero."""
COUNTED = "instructions"
"""The unit of exact figures."""


def number(value: float) -> str:
    """Return a measured figure: whole numbers whole, others with up to four decimals.

    Four are enough for a count divided by up to 10 000 calls. A figure that only rounds to a whole number keeps its
    zeros, so that it does not look exact.
    """
    if value.is_integer():
        return str(int(value))
    text = f"{value:.4f}"
    return text if text.endswith(".0000") else text.rstrip("0")


def figure(value: float | None, unit: str) -> str:
    """Return a measured figure in ``unit``: exact if it was counted, to a tenth if a clock was read."""
    if value is None:
        return NOTHING
    if unit == COUNTED or value.is_integer():
        return number(value)
    tenths = f"{value:.1f}"
    return "0.0" if tenths == "-0.0" else tenths


def signed_figure(change: float, unit: str) -> str:
    """Return a change in ``unit``, with its sign."""
    text = figure(change, unit)
    return f"+{text}" if change > 0 else text


def published_figure(value: float | None) -> str:
    """Return a figure as it was published."""
    return NOTHING if value is None else number(value)


def ratio_figure(value: float | None, base: float | None) -> str:
    """Return the ratio of ``value`` to ``base``, to two decimals; a dash where it is meaningless."""
    if value is None or base is None:
        return NOTHING
    times = ratio(value, base)
    return NOTHING if times is None else f"{times:.2f}"


def unit_name(unit: str) -> str:
    """Return a unit as the documents spell it."""
    return "nsec" if unit == "ns" else unit


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return RFC 4180 text with a header line; a row lacks what it has no figure for."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


_NAMED = 3
"""Names that a sentence lists before it counts the others."""


class Rank(IntEnum):
    """What a sentence is about, the most important first."""

    FAILED = 0
    """Cells without a number, because something went wrong."""
    CONTRADICTED = 1
    """Figures that contradict a document."""
    DIFFERENT = 2
    """What differs most between kernels that are compared."""
    LARGEST = 3
    """What costs most."""
    PUBLISHED = 4
    """How the figures compare with what was published."""
    UNDECIDED = 5
    """Differences that are no larger than those between equal runs."""
    OTHER = 6
    """Where there is nothing of the above: what was measured, and what could not be."""


@dataclass(frozen=True)
class Finding:
    """A short sentence with its figures. Of one rank, the one with the larger ``weight`` is more important.

    The weight of a cost is its ratio to the baseline, so that tables of different units compare.
    """

    rank: Rank
    sentence: str
    weight: float = 0.0


def overhead_findings(
    cells: Sequence[CellRecord], name: Callable[[CellRecord], str], place: str = ""
) -> Iterator[Finding]:
    """The largest overhead, and the overheads that are not decided; the values where there is no overhead.

    ``name`` gives a cell's name in the table, ``place`` the table's name where there are several.
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
        yield Finding(Rank.LARGEST, f"{most}{of_place}: {name(largest)}, {cost(largest)}{beside}.", share or 0.0)
    hidden = [cell for cell in compared if cell.verdict is not None]
    if hidden:
        names = listed([name(cell) for cell in hidden])
        sentence = f"Not decided{of_place}: {names}; the difference is no larger than what equal runs differ by."
        yield Finding(Rank.UNDECIDED, sentence, len(hidden) / len(compared))
    if measured and not compared:
        first = measured[0]
        text = f"{name(first)}: {figure(first.value, first.unit)} {_per(first)}."
        yield Finding(Rank.OTHER, f"{place}: {text}" if place else text)


def relative(cell: CellRecord) -> float | None:
    """A cell's overhead as a part of its baseline; None where there is none above zero."""
    if cell.value is None or cell.overhead is None:
        return None
    base = cell.value - cell.overhead
    return cell.overhead / base if base > 0 else None


def cost(cell: CellRecord) -> str:
    """A cell's overhead in words: ``1450 instructions a call``."""
    return f"{figure(cell.overhead, cell.unit)} {_per(cell)}"


def percent(share: float) -> str:
    """A part of a baseline in per cent, to three digits or whole."""
    value = 100 * share
    return f"{value:+.0f} %" if abs(value) >= 100 else f"{value:+.3g} %"


def listed(names: Iterable[str], most: int = _NAMED, rest: str = "{} others") -> str:
    """Names in a sentence, each once: ``a, b and c``; of many the first ``most``, and how many others there are.

    Where a name has a comma in it, semicolons part them.
    """
    known = list(dict.fromkeys(names))
    *first, last = known if len(known) == most + 1 else shown(known, most, rest)
    comma = "; " if any("," in name for name in (*first, last)) else ", "
    return f"{comma.join(first)} and {last}" if first else last


def _per(cell: CellRecord) -> str:
    return f"{unit_name(cell.unit)} {cell.metric.removeprefix('cost ').replace('per ', 'a ')}"


UNKNOWN = "unknown"
"""Printed in place of a count of traps that were others' as well."""

_SHOWN_BYTES = 5  # as long as a jump


@dataclass(frozen=True)
class Proof:
    """One cell's evidence: its name, the mechanism at the probe point, the live bytes there, and what was checked."""

    name: str
    mechanism: str
    live: str
    facts: Sequence[str]


@dataclass(frozen=True)
class ProofList:
    """The proofs of the cells measured at one place."""

    place: str
    proofs: Sequence[Proof]


def hit_facts(evidence: Evidence) -> list[str]:
    """Return the facts of a counting pass of calls, with a probe or without."""
    calls = counted(evidence.calls, "call")
    if evidence.mechanism == "none":
        return [f"no probe, {calls}"]
    each = f" x {evidence.hits_per_call}" if evidence.hits_per_call != 1 else ""
    facts = [f"{evidence.hits} hits = {calls}{each}"] if evidence.hits_per_call else [f"no hit in {calls}"]
    if evidence.others:
        facts.append(f"{evidence.others} hits by others")
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


def proof_lists(
    cells: Sequence[CellRecord],
    name: Callable[[CellRecord], str],
    facts: Callable[[Evidence], Sequence[str]] = hit_facts,
) -> list[ProofList]:
    """Return the evidence of all cells that are ok, in their order.

    ``name`` gives a cell's name in the table, ``facts`` what its evidence shows.
    """
    proved = [(cell, cell.evidence) for cell in cells if cell.status == "ok" and cell.evidence]
    lists = []
    for (symbol, clocksource), group in groupby(proved, lambda pair: (pair[1].symbol, pair[1].clocksource)):
        proofs = []
        for cell, evidence in group:
            live = bytes.fromhex(evidence.probe_bytes)[:_SHOWN_BYTES].hex(" ")
            proofs.append(Proof(name(cell), evidence.mechanism, live, facts(evidence)))
        lists.append(ProofList(f"Evidence at {symbol} (clocksource {clocksource})", proofs))
    return lists


def traps_per_hit(cell: CellRecord) -> float | None:
    """Return the breakpoint traps that a hit took; None without hits or without a count of traps."""
    evidence = cell.evidence
    if cell.status != "ok" or evidence is None or evidence.int3 is None or not evidence.hits:
        return None
    return evidence.int3 / evidence.hits


def untold_traps(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Iterator[str]:
    """A sentence on the valid cells whose traps are not known because others hit the point while they were counted."""
    hit = [cell for cell in cells if hides_traps(cell)]
    if hit:
        others = sum(cell.evidence.others or 0 for cell in hit if cell.evidence is not None)
        came = f"{counted(others, 'hit')} by others" if others else "hits by others"
        yield (
            f"int3 a hit is {UNKNOWN} for {listed([name(cell) for cell in hit])}: {came} "
            "came while the hits were counted, and QEMU counts the traps of all."
        )


def hides_traps(cell: CellRecord) -> bool:
    """Whether others hit a valid cell's point, so that the traps that QEMU counted are not its own alone.

    A module that does not count their hits has hidden them where its traps are no whole number a hit.
    """
    evidence = cell.evidence
    if cell.status != "ok" or evidence is None or ACCELERATOR.of(cell) == "kvm":
        return False
    hits_by_others = bool(evidence.others) or (evidence.others is None and evidence.mechanism == "int3")
    return evidence.int3 is None and hits_by_others


_OF_ONE_BOOT = re.compile(r"\[ *\d+\.\d+\]|\b(?:0x)?[0-9a-f]{8,16}\b|\b[0-9a-f]{24}\b")
"""What differs between two guests whose kernels say the same: when it was said, addresses, and places in the cache."""


def shared_key(text: str) -> str:
    """What is the same in two texts that say the same of two guests."""
    return _OF_ONE_BOOT.sub("", text)


def by_reason(cells: Iterable[CellRecord]) -> list[Sequence[CellRecord]]:
    """Return the cells without a number, those of one status and reason together; the first one's words stand for all.

    In the order of each reason's first cell.
    """
    groups: dict[tuple[str, str], list[CellRecord]] = {}
    for cell in cells:
        if cell.reason is not None:
            groups.setdefault((cell.status, shared_key(cell.reason)), []).append(cell)
    return list(groups.values())


@dataclass(frozen=True)
class Footnote:
    """A note; ``text`` may have several lines. Without ``mark`` it concerns every number of the table.

    ``reason`` is the end of the text that may be said of cells in other tables as well; nothing where there is none.
    """

    mark: int | None
    text: str
    failure: bool = False
    reason: str = ""


class Footnotes:
    """The notes of a table's cells, numbered in the cells' order; the same sentence is printed once.

    ``name`` gives a cell's name in the table, ``remark`` the table's own note on one.
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
            own = remark(cell)
            for sentence in [*([own] if own else []), *cell.notes]:
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
                names = listed([name(one) for one in alike])
                self._add(alike, f"{names} {cell.status}{count}: ", cell.reason or "", failure=True)
            for sentence in [sentence for sentence, group in concerned.items() if group[0] is cell]:
                group = concerned[sentence]
                if not len(group) >= len(valid) > 1:
                    self._add(group, f"{listed([name(one) for one in group])}: ", sentence, failure=False)

    def all(self) -> Sequence[Footnote]:
        return self._notes

    def marks(self, cell: CellRecord) -> str:
        """The marks of a cell's notes, with a blank before each: `` [1] [2]``, or nothing."""
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
class Column:
    """A heading, and what stands below it for a cell that has a number."""

    heading: str
    figure: Callable[[CellRecord], str]


def cell_row(name: str, cell: CellRecord, columns: Sequence[Column], footnotes: Footnotes, otherwise: str = "") -> Row:
    """Return a cell's row. Without a number its status stands in the first column, and ``otherwise`` in the others."""
    without: list[str] = [cell.status, *[otherwise] * (len(columns) - 1)]
    first, *others = without if cell.value is None else [column.figure(cell) for column in columns]
    return Row(name, [first + footnotes.marks(cell), *others])


@dataclass(frozen=True)
class Sheet:
    """A table with its title, what it was measured on (``facts``), sentences on how to read it, and its evidence."""

    title: str
    facts: Sequence[str]
    grid: Grid
    sentences: Sequence[str]
    footnotes: Sequence[Footnote] = ()
    proofs: Sequence[ProofList] = ()


def used_columns(headings: Sequence[str], rows: Sequence[Row], always: int) -> tuple[list[str], list[Row]]:
    """The first columns, which are there even without a figure, and those in which a row has one."""
    used = [place for place in range(len(headings)) if place < always or any(row.cells[place] for row in rows)]
    narrowed = [replace(row, cells=[row.cells[place] for place in used]) for row in rows]
    return [headings[place] for place in used], narrowed


def shared_parts(names: Sequence[Sequence[str]]) -> Sequence[bool]:
    """Of each part whether all names have the same one there; empty where they have not the same number of parts."""
    if len({len(name) for name in names}) != 1:
        return []
    return [len(set(column)) == 1 for column in zip(*names, strict=True)]
