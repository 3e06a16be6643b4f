# SPDX-License-Identifier: GPL-2.0-only
"""The table of loads beside thousands of events: the cost of enabling one, and the functions that miss caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from orchestrator.benchmarks.scaling.rows import LOOKUPS, kprobe_cache
from orchestrator.benchmarks.scaling.scaling_cells import (
    PER_SECOND,
    CellOfColumn,
    ScalingCells,
    cell_name,
    cell_place,
    row_of,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.program import PROGRAM
from orchestrator.report.kind import processors
from orchestrator.report.sheet import (
    NOTHING,
    Footnotes,
    Grid,
    Row,
    Sheet,
    proof_lists,
)
from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import mean

_CACHES = {"l1d": "L1D", "l2": "L2"}


_LOADS = {"calls": "small system calls", "files": "processes and files"}


_WITHOUT = {"calls": BASELINE, "files": "files-without"}


_LOOKUP = LOOKUPS[0]


_EARLY = 5
"""Groups of events that are enabled before all others."""


def load_sheet(table: ScalingCells) -> Sheet:
    """The table of loads beside thousands of events."""
    first, footnotes = table.cells[0], Footnotes(table.cells, cell_name, lambda _: None)
    blocks = [_enabling(table), *(_load(table, size, load) for size in table.sizes for load in _LOADS)]
    return Sheet(
        title="Loads beside thousands of kprobes, as events of tracefs",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}; half of the events are enabled, through the function tracer",
        ],
        grid=Grid([*table.kernels, "published, without", "with"], [rows for block in blocks if (rows := list(block))]),
        sentences=list(_load_sentences(table)),
        footnotes=footnotes.all(),
        proofs=proof_lists([cell for cell in table.cells if row_of(cell) == "calls"], cell_place),
    )


def _beside(label: str, cells: CellOfColumn, text: Callable[[CellRecord], str]) -> Row:
    return Row(label, [*(NOTHING if cell is None else text(cell) for cell in cells), "", ""])


def _enabling(table: ScalingCells) -> Iterator[Row]:
    """Guest milliseconds of an event: the mean of the first and of the last five groups; published, that of all."""

    def milliseconds(groups: slice) -> Callable[[CellRecord], str]:
        return lambda cell: f"{1000 * mean(cell.samples[groups]) / PER_SECOND:.3f}" if cell.samples else cell.status

    published = kprobe_cache().published
    each = [f"{1000 * published.net_seconds(which) / published.enabled:.1f}" for which in ("without", "with")]
    for size in table.sizes:
        cells = table.across("enable", size)
        if any(cells):
            yield Row(f"Enable an event, of {size} defined, ms", [""] * (len(cells) + 2), style="bold")
            yield _beside("  of the first 50", cells, milliseconds(slice(None, _EARLY)))
            yield _beside("  of the last 50", cells, milliseconds(slice(_EARLY, None)))
            yield Row("  of all, published", [*([""] * len(cells)), *each])


def _load(table: ScalingCells, size: int, load: str) -> Iterator[Row]:
    def millions(cell: CellRecord) -> str:
        return cell.status if cell.value is None else f"{cell.value / 1e6:.3f}"

    cells, published = table.across(load, size), kprobe_cache().published
    if not any(cells):
        return
    yield Row(f"{_LOADS[load].capitalize()}, {size} defined", [""] * (len(cells) + 2), style="bold")
    yield _beside("  a run, million instructions", cells, millions)
    yield _beside("  the same without events", table.across(_WITHOUT[load], size), millions)
    for cache, name in _CACHES.items():
        misses = [_misses(cell, cache, ("misses",)) for cell in cells]
        if not any(misses):
            continue
        yield Row(f"  {name} misses", [*(NOTHING if count is None else str(count) for count in misses), "", ""])
        for function in published.functions:
            shares = [_share(cell, cache, function) for cell in cells]
            documented = [published.misses[which].get(function) for which in ("without", "with")]
            label = f"    {function}, %" if function != _LOOKUP else "    the lookup (get_kprobe), %"
            yield Row(
                label, [NOTHING if percentage is None else f"{percentage:.2f}" for percentage in (*shares, *documented)]
            )


def _share(cell: CellRecord | None, cache: str, function: str) -> float | None:
    """A function's share of a cell's misses in per cent; None where no caches were modelled."""
    of_all = _misses(cell, cache, ("misses",))
    # On a kernel with the cache the lookup has other functions.
    of_function = _misses(cell, cache, LOOKUPS if function == _LOOKUP else (function,))
    return None if not of_all or of_function is None else 100 * of_function / of_all


def _misses(cell: CellRecord | None, cache: str, names: Sequence[str]) -> int | None:
    values = [cell.parameters.get(f"{cache}_{name}") for name in names] if cell else []
    known = [int(value) for value in values if isinstance(value, int | float)]
    return sum(known) if known else None


def _load_sentences(table: ScalingCells) -> Iterator[str]:
    published = kprobe_cache().published
    yield (
        f"Published: {kprobe_cache().source}: {published.enabled} of {published.registered} events enabled in "
        f"{published.seconds['without']} s and with the cache in {published.seconds['with']} s, {published.pauses} "
        f"pauses of {published.pause_seconds} s included, which the mean leaves out; shares of perf's event "
        "cache-misses, of which the mail names neither the cache, the CPU nor the load."
    )
    if any("l1d_misses" in cell.parameters for cell in table.cells):
        yield f"Misses are those of models with LRU and without prefetching; all of them: {PROGRAM} profile RUN CELL."
    # The document's statements on the lookup, with and without the cache, for the largest number of events.
    plain = next((kernel for kernel in table.kernels if not table.cache(kernel)), None)
    cached = next((kernel for kernel in table.kernels if table.cache(kernel)), None)
    if plain is None or cached is None:
        return
    before, after = (published.misses[which][_LOOKUP] for which in ("without", "with"))
    for load, title in _LOADS.items():
        for cache, name in _CACHES.items():
            without, within = (
                _share(table.cell(kernel, load, table.sizes[-1]), cache, _LOOKUP) for kernel in (plain, cached)
            )
            if without is None or within is None:
                continue
            falls = "holds" if within < without else "does not hold"
            most = "holds" if without > 50 else "does not hold"
            yield (
                f"{title.capitalize()}, {name}: without the cache most misses are the lookup's: {most} "
                f"({without:.1f} %, published {before}); the cache lowers its share: {falls} (to {within:.1f} %, "
                f"published {after})."
            )
