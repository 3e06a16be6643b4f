# SPDX-License-Identifier: GPL-2.0-only
"""The model of the kprobes' hash and its cache: the cost of a lookup, and the cache's hit rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.benchmarks.scaling.report.growth_rows import growth_rows
from orchestrator.benchmarks.scaling.report.scaling_cells import ScalingCells, row_of, size_of
from orchestrator.benchmarks.scaling.rows import ScalingRow, scaling_benchmark, scaling_row
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.evidence import hit_facts, proof_lists
from orchestrator.report.figures import NOTHING, figure
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Group
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import processors
from orchestrator.results.contract import CellRecord, Evidence

BENCHMARK = "kpcache-model"
_MODEL = "model"
"""The mechanism of a lookup that touches no probe."""
ACCESS = {0: "Any of the addresses", 95: "95 of 100 times one of 256"}


def model_sheet(group: Group) -> Sheet:
    """Return the panels of one machine and kernel as one table."""
    table, first = ScalingCells.of(group), group[0].first
    footnotes = Footnotes(table.cells, _name, lambda _: None)
    cache = next((cell.parameters["cache_bytes"] for cell in table.cells if "cache_bytes" in cell.parameters), None)
    return Sheet(
        title="A model of the kprobes' hash and of its cache",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}, kernel {group[0].kernel}; instructions a lookup, interrupts off",
        ],
        grid=Grid([title for title, _ in _columns()], list(_blocks(table, footnotes)), together=4),
        sentences=[
            "No kprobe is there: a module has the document's lists and cache, and looks addresses of the kernel's own "
            "functions up in them. The cache has as many sets of four as there are lists.",
            "Instructions are a count, not time: what a walk along a list waits for memory is not in them.",
            *([] if cache is None else [f"The cache of 4096 sets takes {cache} bytes a CPU."]),
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists([cell for cell in table.cells if size_of(cell) == table.sizes[-1]], _name, _facts),
    )


def _columns() -> list[tuple[str, tuple[int, str]]]:
    rows = _rows()
    return list({(row.bits, row.walk): (row.title, (row.bits, row.walk)) for row in rows.values()}.values())


def _rows() -> dict[str, ScalingRow]:
    benchmark = scaling_benchmark(BENCHMARK)
    assert benchmark is not None
    return benchmark.rows


def _blocks(table: ScalingCells, footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    (kernel, *_) = table.kernels
    for hot, title in ACCESS.items():
        names = [
            next(name for name, row in _rows().items() if (row.bits, row.walk) == column and row.hot == hot)
            for _, column in _columns()
        ]
        rows = [Row(title, [""] * len(names), style="bold")]
        for size in table.sizes:
            cells = [table.cell(kernel, name, size) for name in names]
            if not any(cells):
                continue
            rows.append(Row(f"{size} addresses", [_shown(cell, footnotes) for cell in cells]))
            rows.append(Row("  found in the cache", [_found(cell) for cell in cells]))
        rows += growth_rows("exponent", [table.growth_of_each(kernel, name) for name in names])
        if len(rows) > 2:
            yield rows


def _shown(cell: CellRecord | None, footnotes: Footnotes) -> str:
    if cell is None:
        return NOTHING
    return f"{cell.status}{footnotes.marks(cell)}" if cell.overhead is None else figure(cell.overhead, cell.unit)


def _found(cell: CellRecord | None) -> str:
    if cell is None or "cache_hits" not in cell.parameters:
        return ""
    hits, lookups = cell.parameters["cache_hits"], cell.parameters["lookups"]
    assert isinstance(hits, int | float)
    assert isinstance(lookups, int | float)
    return f"{100 * hits / lookups:.1f} %" if lookups else NOTHING


def _name(cell: CellRecord) -> str:
    row = scaling_row(cell.probe)
    if cell.probe == BASELINE or row is None:
        return f"baseline, {size_of(cell)}" if cell.probe == BASELINE else row_of(cell)
    return f"{row.title}, {size_of(cell)}, {'any' if not row.hot else 'few'}"


def _facts(evidence: Evidence) -> list[str]:
    if evidence.mechanism == _MODEL:
        return [f"{evidence.hits} of {evidence.calls} found their own", "nothing patched"]
    return hit_facts(evidence)
