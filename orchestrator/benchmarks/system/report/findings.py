# SPDX-License-Identifier: GPL-2.0-only
"""What a table of whole systems shows: what adds most to a run, what was published of it, what is not decided."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.benchmarks.system.report.comparison import (
    is_baseline,
    percent,
    published_row,
    published_table,
    row_title,
)
from orchestrator.report.findings import Finding, Rank, listed
from orchestrator.report.panel import Panel
from orchestrator.results.contract import CellRecord

_MILLION = 1e6


def system_findings(panel: Panel) -> Iterator[Finding]:
    """The findings of one workload on one machine; A/A boots and the baseline add nothing."""
    table = panel.first.table
    place, of_table = (f"{table}: ", f", {table}") if table else ("", "")
    unit = "million instructions" if panel.first.clock == "instructions" else "ms"
    measured = [cell for cell in panel.cells if cell.value is not None]
    compared = [
        cell
        for cell in measured
        if cell.overhead is not None and not is_baseline(panel, cell) and not cell.parameters.get("again")
    ]
    decided = [cell for cell in compared if cell.verdict is None]
    if decided:
        largest = max(decided, key=lambda cell: cell.overhead or 0.0)
        share = percent(largest, largest.overhead) or 0.0
        more = f"{(largest.overhead or 0.0) / _MILLION:+.3f} {unit} a run of {largest.benchmark}, {share:+.3f} %"
        most, name = "Largest overhead" if len(compared) > 1 else "Overhead", row_title(panel, largest)
        yield Finding(Rank.LARGEST, f"{most}{of_table}: {name}, {more}.", share / 100)
        yield from _published(panel, largest, f"{place}{name}", share)
    hidden = [cell for cell in compared if cell.verdict is not None]
    if hidden:
        names = listed([row_title(panel, cell) for cell in hidden])
        sentence = f"Not decided{of_table}: {names}; the difference is no larger than between boots of equal systems."
        yield Finding(Rank.UNDECIDED, sentence, len(hidden) / len(compared))
    if measured and not compared:
        first = measured[0]
        value = (first.value or 0.0) / _MILLION
        sentence = f"{place}{row_title(panel, first)}: {value:.3f} {unit} a run of {first.benchmark}."
        yield Finding(Rank.OTHER, sentence)


def _published(panel: Panel, cell: CellRecord, name: str, share: float) -> Iterator[Finding]:
    table = published_table(panel.cells)
    row = published_row(table, cell)
    if table is None or row is None:
        return
    difference = table.difference(row)
    if difference is not None and table.baseline.real:
        documented = f"{100 * difference / table.baseline.real:+.3f} %"
    elif row.overhead is not None:
        documented = f"{row.bound} {row.overhead:g} %".strip()
    else:
        return
    yield Finding(Rank.PUBLISHED, f"{name}: {share:+.3f} %; published: {documented}.", abs(share) / 100)
