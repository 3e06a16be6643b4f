# SPDX-License-Identifier: GPL-2.0-only
"""Loads beside thousands of events: what enabling one costs, and whose instructions miss in models of caches."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.benchmarks.scaling.report.scaling_cells import ScalingCells, row_of, size_of
from orchestrator.benchmarks.scaling.rows import kprobe_cache
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.program import PROGRAM
from orchestrator.report.evidence import proof_lists
from orchestrator.report.figures import NOTHING
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Group
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import processors
from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import mean

BENCHMARK = "kpcache-load"
_CACHES = {"l1d": "L1D", "l2": "L2"}
_LOADS = {"calls": "small system calls", "files": "processes and files"}
_WITHOUT = {"calls": BASELINE, "files": "files-without"}
_LOOKUP = "get_kprobe"
_LOOKUPS = (_LOOKUP, "get_kprobe_cached", "__get_kprobe")
"""One lookup: on a kernel with the cache it has other functions."""
_PER_SECOND = 1e9
"""Instructions in a second of the guest's time on the exact clock."""
_MILLION = 1e6

_HALF = 50  # per cent
_EARLY = 5
"""Groups of events that are enabled before all others."""


def load_sheet(group: Group) -> Sheet:
    """Return the panels of one machine as one table, a column for each kernel."""
    table, first = ScalingCells.of(group), group[0].first
    footnotes = Footnotes(table.cells, _name, lambda _: None)
    return Sheet(
        title="Loads beside thousands of kprobes, as events of tracefs",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}; half of the events are enabled, through the function tracer",
        ],
        grid=Grid([*table.kernels, "published, without", "with"], [block for block in _blocks(table) if block]),
        sentences=list(_sentences(table)),
        footnotes=footnotes.all(),
        proofs=proof_lists([cell for cell in table.cells if row_of(cell) == "calls"], _name),
    )


def _blocks(table: ScalingCells) -> Iterator[list[Row]]:
    yield list(_enabling(table))
    for size in table.sizes:
        for load, title in _LOADS.items():
            yield list(_load(table, size, load, title))


def _enabling(table: ScalingCells) -> Iterator[Row]:
    """Five groups before all others and five behind them, in guest milliseconds each; published: the mean of all."""
    published = kprobe_cache().published
    each = [f"{1000 * published.net_seconds(which) / published.enabled:.1f}" for which in ("without", "with")]
    for size in table.sizes:
        cells = [table.cell(kernel, "enable", size) for kernel in table.kernels]
        if not any(cells):
            continue
        yield Row(f"Enable an event, of {size} defined, ms", [""] * (len(cells) + 2), style="bold")
        yield Row("  of the first 50", [*(_milliseconds(cell, slice(None, _EARLY)) for cell in cells), "", ""])
        yield Row("  of the last 50", [*(_milliseconds(cell, slice(_EARLY, None)) for cell in cells), "", ""])
        yield Row("  of all, published", [*([""] * len(cells)), *each])


def _load(table: ScalingCells, size: int, load: str, title: str) -> Iterator[Row]:
    cells = [table.cell(kernel, load, size) for kernel in table.kernels]
    bare = [table.cell(kernel, _WITHOUT[load], size) for kernel in table.kernels]
    if not any(cells):
        return
    yield Row(f"{title.capitalize()}, {size} defined", [""] * (len(cells) + 2), style="bold")
    yield Row("  a run, million instructions", [*map(_millions, cells), "", ""])
    yield Row("  the same without events", [*map(_millions, bare), "", ""])
    published = kprobe_cache().published.misses
    for cache, name in _CACHES.items():
        misses = [_misses(cell, cache, None) for cell in cells]
        if not any(misses):
            continue
        yield Row(f"  {name} misses", [*(NOTHING if one is None else str(one) for one in misses), "", ""])
        for function in dict.fromkeys(name for shares in published.values() for name in shares):
            shares = [share(cell, cache, function) for cell in cells]
            documented = [published[which].get(function) for which in ("without", "with")]
            label = f"    {function}, %" if function != _LOOKUP else "    the lookup (get_kprobe), %"
            yield Row(label, [_percent(one) for one in (*shares, *documented)])


def share(cell: CellRecord | None, cache: str, function: str) -> float | None:
    """Return a function's share of a cell's misses in per cent; None where no caches were modelled."""
    of_all, own = _misses(cell, cache, None), _misses(cell, cache, function)
    return None if not of_all or own is None else 100 * own / of_all


def _misses(cell: CellRecord | None, cache: str, function: str | None) -> int | None:
    if cell is None:
        return None
    names = ("misses",) if function is None else _LOOKUPS if function == _LOOKUP else (function,)
    found = [cell.parameters.get(f"{cache}_{name}") for name in names]
    known = [int(one) for one in found if isinstance(one, int | float)]
    return sum(known) if known else None


def _sentences(table: ScalingCells) -> Iterator[str]:
    published = kprobe_cache().published
    yield (
        f"Published: {kprobe_cache().source}: {published.enabled} of {published.registered} events enabled in "
        f"{published.seconds['without']} s and with the cache in {published.seconds['with']} s, {published.pauses} "
        f"pauses of {published.pause_seconds} s included, which the mean leaves out; shares of perf's event "
        "cache-misses, of which the mail names neither the cache, the CPU nor the load."
    )
    if any("l1d_misses" in cell.parameters for cell in table.cells):
        yield f"Misses are those of models with LRU and without prefetching; all of them: {PROGRAM} profile RUN CELL."
    yield from _claims(table)


def _claims(table: ScalingCells) -> Iterator[str]:
    """What the document says of the lookup, with and without the cache, computed from the largest number of events."""
    plain = next((kernel for kernel in table.kernels if not table.cache(kernel)), None)
    cached = next((kernel for kernel in table.kernels if table.cache(kernel)), None)
    if plain is None or cached is None:
        return
    size, documented = table.sizes[-1], kprobe_cache().published.misses
    before, after = (documented[which][_LOOKUP] for which in ("without", "with"))
    for load, title in _LOADS.items():
        for cache, name in _CACHES.items():
            shares = [share(table.cell(kernel, load, size), cache, _LOOKUP) for kernel in (plain, cached)]
            without, within = shares
            if without is None or within is None:
                continue
            falls = "holds" if within < without else "does not hold"
            most = "holds" if without > _HALF else "does not hold"
            yield (
                f"{title.capitalize()}, {name}: without the cache most misses are the lookup's: {most} "
                f"({without:.1f} %, published {before}); the cache lowers its share: {falls} (to {within:.1f} %, "
                f"published {after})."
            )


def _millions(cell: CellRecord | None) -> str:
    if cell is None:
        return NOTHING
    return cell.status if cell.value is None else f"{cell.value / _MILLION:.3f}"


def _milliseconds(cell: CellRecord | None, groups: slice) -> str:
    if cell is None:
        return NOTHING
    return f"{1000 * mean(cell.samples[groups]) / _PER_SECOND:.3f}" if cell.samples else cell.status


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _name(cell: CellRecord) -> str:
    return f"{'none' if cell.probe == BASELINE else row_of(cell)}, {size_of(cell)} on {cell.kernel}"
