# SPDX-License-Identifier: GPL-2.0-only
"""Sentences above the tables of calls: ratios to the published ones, and what differs between kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.benchmarks.calls.tables.layout import percent_of, probe_title
from orchestrator.benchmarks.calls.tables.points_table import shows_points
from orchestrator.catalog.probes import BASELINE, published_column
from orchestrator.report.figures import NOTHING, figure, ratio_figure, signed_figure, unit_name
from orchestrator.report.highlights import Highlight, Rank, cost
from orchestrator.report.table_report import (
    CellGroup,
    published,
)
from orchestrator.results.contract import CellRecord


def _decided(group: CellGroup) -> dict[str, CellRecord]:
    """The cells that have an overhead with a verdict, by their probes."""
    return {cell.probe: cell for cell in group.cells if cell.overhead is not None and cell.verdict is None}


_THEN, _TODAY = "djprobe", "bpf-fentry"
"""The jump of 2005, and its successor, the call of Linux 5.5 (2019): both enter the handler without a trap."""


def ratio_findings(group: CellGroup, place: str) -> Iterator[Highlight]:
    """How many times as much as the reference's probe each other costs, beside the published ratio."""
    table = group.reference
    if table is None:
        return
    decided = _decided(group)
    base = next((cell for cell in decided.values() if published_column(cell.probe) == table.compared_with), None)
    other_cells = [cell for probe, cell in decided.items() if probe != BASELINE and cell is not base]
    if base is None or base.overhead is None or base.overhead <= 0 or not other_cells:
        return
    largest = max(other_cells, key=lambda cell: cell.overhead or 0.0)
    times = [group.time(cell) for cell in (largest, base)]
    figures = [None if cell is None else cell.overhead for cell in times]
    is_fit = all(cell is not None and cell.is_fit for cell in times)
    in_time = f" in modelled time{' (fit)' if is_fit else ''}" if all(figures) else ""
    measured = ratio_figure(*figures) if in_time else ratio_figure(largest.overhead, base.overhead)
    documented = ratio_figure(published(largest, table.id).overhead, published(base, table.id).overhead)
    beside = "" if documented == NOTHING else f"; published: {documented}"
    of_place = f", in {place}" if place else ""
    both = f"{probe_title(largest)} to {probe_title(base)}"
    sentence = f"Ratio of {both}{of_place}{in_time}: {measured}{beside}."
    yield Highlight(Rank.PUBLISHED, sentence, (largest.overhead or 0.0) / base.overhead)


def fifteen_years(groups: Sequence[CellGroup]) -> Iterator[Highlight]:
    """The overhead of djprobe (2005) beside that of fentry (2019), with handlers that do nothing, by kernel."""
    pairs = []
    for group in groups:
        decided = _decided(group)
        then, today = decided.get(_THEN), decided.get(_TODAY)
        if then is not None and today is not None and group.first.handler == "noop" and not shows_points(group):
            pairs.append(f"{figure(then.overhead, then.unit)} to {cost(today)} on {group.kernel}")
    if pairs:
        sentence = f"What fifteen years brought, from djprobe (2005) to BPF on fentry (2019): {', '.join(pairs)}."
        yield Highlight(Rank.PUBLISHED, sentence)


def kernel_findings(groups: Sequence[CellGroup]) -> Iterator[Highlight]:
    """The largest change of a probe's value from the first kernel to another."""
    base, *other_cells = [{cell.probe: cell for cell in group.cells} for group in groups]
    differences = [
        (value - before, cell, before)
        for group in other_cells
        for probe, cell in group.items()
        if (value := cell.value) is not None and probe in base and (before := base[probe].value) is not None
    ]
    if not differences:
        return
    difference, cell, before = max(differences, key=lambda change: abs(change[0]))
    place = groups[0].place(groups[0].first.table)
    of_place = f", {place}" if place else ""
    if not difference:
        kernels = ", ".join(group.kernel for group in groups)
        yield Highlight(Rank.DIFFERENT, f"Calls cost the same on {kernels}{f' ({place})' if place else ''}.")
        return
    share = f" ({percent_of(difference, before)})" if before > 0 else ""
    more = f"{signed_figure(difference, cell.unit)} {unit_name(cell.unit)} a call{share}"
    sentence = f"Largest difference from {groups[0].kernel} to {cell.kernel}{of_place}: {probe_title(cell)}, {more}."
    yield Highlight(Rank.DIFFERENT, sentence, abs(difference) / before if before > 0 else 0.0)
