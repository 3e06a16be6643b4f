# SPDX-License-Identifier: GPL-2.0-only
"""What tables of calls show: the largest overhead, and how many times that of the optimised probe it is."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.benchmarks.calls.report.points_layout import shows_points
from orchestrator.benchmarks.calls.report.wording import probe_title
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.figures import NOTHING, figure, ratio_figure
from orchestrator.report.findings import Finding, Rank, cost, overhead_findings
from orchestrator.report.panel import Group, Panel
from orchestrator.report.published import published
from orchestrator.results.contract import CellRecord

_COMPARED_WITH = {"list": "djprobe", "mail": "kprobe-optimized"}
"""The probe that a document compares the others with, by the layout of its tables."""
_THEN, _TODAY = "djprobe", "bpf-fentry"
"""The jump of 2005, and the call of Linux 5.5 (2019) that took its place: each enters the handler without a trap."""


def call_findings(group: Group) -> Iterator[Finding]:
    """The findings of each panel; of several panels in one table, with their names."""
    names = [panel.name if panel.references or len(group) == 1 else panel.kernel for panel in group]
    for name_of_panel, panel in zip(names, group, strict=True):
        place = panel.place(name_of_panel if len(group) > 1 or panel.first.table is not None else None)
        name = _name_by_function if shows_points(panel) else probe_title
        yield from overhead_findings(panel.cells, name, place)
        yield from _ratios(panel, place)
    yield from _fifteen_years(group)


def _name_by_function(cell: CellRecord) -> str:
    return f"{probe_title(cell)} at {cell.parameters.get('at')}"


def _ratios(panel: Panel, place: str) -> Iterator[Finding]:
    """The largest measured ratio to the probe that the document compares with, and what it published."""
    table = panel.reference
    if table is None:
        return
    decided = {cell.probe: cell for cell in panel.cells if cell.overhead is not None and cell.verdict is None}
    base = decided.get(_COMPARED_WITH.get(table.layout, ""))
    others = [cell for probe, cell in decided.items() if probe != BASELINE and cell is not base]
    if base is None or base.overhead is None or base.overhead <= 0 or not others:
        return
    largest = max(others, key=lambda cell: cell.overhead or 0.0)
    measured = ratio_figure(largest.overhead, base.overhead)
    documented = ratio_figure(published(largest, table.id).overhead, published(base, table.id).overhead)
    beside = "" if documented == NOTHING else f"; published: {documented}"
    of_place = f", in {place}" if place else ""
    sentence = f"Ratio of {probe_title(largest)} to {probe_title(base)}{of_place}: {measured}{beside}."
    yield Finding(Rank.PUBLISHED, sentence, (largest.overhead or 0.0) / base.overhead)


def _fifteen_years(group: Group) -> Iterator[Finding]:
    """From the djprobe of 2005 to fentry, where both do nothing else, on each kernel that has both."""
    pairs = []
    for panel in group:
        decided = {cell.probe: cell for cell in panel.cells if cell.overhead is not None and cell.verdict is None}
        then, today = decided.get(_THEN), decided.get(_TODAY)
        if then is not None and today is not None and panel.first.handler == "noop" and not shows_points(panel):
            pairs.append(f"{figure(then.overhead, then.unit)} to {cost(today)} on {panel.kernel}")
    if pairs:
        sentence = f"What fifteen years brought, from djprobe (2005) to BPF on fentry (2019): {', '.join(pairs)}."
        yield Finding(Rank.PUBLISHED, sentence)
