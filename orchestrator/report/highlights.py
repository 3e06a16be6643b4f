# SPDX-License-Identifier: GPL-2.0-only
"""Highlights: ranked sentences on a table's most important figures, from which a summary is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from orchestrator.catalog.probes import BASELINE
from orchestrator.plain_text import listed
from orchestrator.report.figures import figure, percent, unit_name
from orchestrator.results.contract import CellRecord


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


def _per(cell: CellRecord) -> str:
    return f"{unit_name(cell.unit)} {cell.metric.removeprefix('cost ').replace('per ', 'a ')}"
