# SPDX-License-Identifier: GPL-2.0-only
"""Sentences on what a table shows, each with what makes it more or less important than others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from orchestrator.catalog.probes import BASELINE
from orchestrator.report.figures import figure, unit_name
from orchestrator.results.contract import CellRecord

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


def listed(names: Sequence[str]) -> str:
    """Names in a sentence, each once: ``a, b and c``; of many the first, and how many others there are.

    Where a name has a comma in it, semicolons part them.
    """
    known = list(dict.fromkeys(names))
    shown, others = (known, 0) if len(known) <= _NAMED + 1 else (known[:_NAMED], len(known) - _NAMED)
    *first, last = [*shown, *([f"{others} others"] if others else [])]
    comma = "; " if any("," in name for name in shown) else ", "
    return f"{comma.join(first)} and {last}" if first else last


def _per(cell: CellRecord) -> str:
    return f"{unit_name(cell.unit)} {cell.metric.removeprefix('cost ').replace('per ', 'a ')}"
