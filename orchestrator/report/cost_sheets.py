# SPDX-License-Identifier: GPL-2.0-only
"""A cost table as it is printed: what a CPU takes for what is counted, and its caches, each figure with its source."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.catalog.cpu_caches import CpuCaches
from orchestrator.catalog.cpus import cpu
from orchestrator.report.grid import Grid, Row
from orchestrator.report.sheet import Sheet
from orchestrator.results.modelled import Costs

_NOT_PRICED = "Misses are not priced; only `recorded line`, where a cost table has it, assumes one."


def cost_sheets(costs: Costs) -> list[Sheet]:
    """All of a cost table: its costs, and its caches where it names them."""
    return [cost_sheet(costs), *([] if costs.caches is None else [_caches(costs.cpu, costs.caches)])]


def cost_sheet(costs: Costs) -> Sheet:
    """The costs of a CPU, with ranges and sources; or the reason why no time follows from them."""
    rows = [Row(one.name, [*map(_significant, (one.value, one.low, one.high)), one.source]) for one in costs.costs]
    declared = "not calibrated" if costs.declared is None else f"declared {costs.declared}"
    reason = [] if costs.reason is None else [f"No time follows from them: {costs.reason}"]
    sources = _by_source((one.name, one.where) for one in costs.costs)
    return Sheet(
        title=f"Costs of {cpu(costs.cpu).title}",
        facts=[f"in cycles; cost table {costs.cpu}, {declared}, SHA-256 {costs.sha256[:12]}..."],
        grid=Grid(["value", "from", "to", "source"], [rows], together=4),
        sentences=[*reason, *sources, *costs.remarks],
        footnotes=[],
        proofs=[],
    )


def _caches(name: str, caches: CpuCaches) -> Sheet:
    levels = {"L1 instructions": caches.l1i, "L1 data": caches.l1d, "L2": caches.l2}
    tlbs = {"instruction TLB": caches.itlb, "data TLB": caches.dtlb}
    rows = [Row(label, [f"{one.size // 1024} KiB", str(one.ways), str(one.line)]) for label, one in levels.items()]
    rows += [Row(label, [f"{one.entries} entries", str(one.ways), str(one.page)]) for label, one in tlbs.items()]
    sources = [(label, one.source) for label, one in levels.items()]
    sources += [(label, one.source) for label, one in tlbs.items()]
    return Sheet(
        title=f"Caches and TLBs of {cpu(name).title}",
        facts=[f"{caches.core}; entry {caches.name} of cpu_caches.yaml"],
        grid=Grid(["size", "ways", "bytes of a line or page"], [rows], together=3),
        sentences=[_NOT_PRICED, *_by_source(sources)],
        footnotes=[],
        proofs=[],
    )


def _by_source(figures: Iterable[tuple[str, str]]) -> list[str]:
    """A sentence for each source: the names of what is from there."""
    names: dict[str, list[str]] = {}
    for name, where in figures:
        names.setdefault(where, []).append(name)
    return [f"{', '.join(of)}: {where}." for where, of in names.items()]


def _significant(value: float) -> str:
    """Four digits at least: costs are from a fraction of a cycle to thousands."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
