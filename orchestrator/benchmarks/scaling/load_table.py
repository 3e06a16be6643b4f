# SPDX-License-Identifier: GPL-2.0-only
"""The table of loads beside thousands of events: the cost of enabling one, and the functions that miss caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from orchestrator.benchmarks.scaling.rows import LOOKUPS, kprobe_cache
from orchestrator.benchmarks.scaling.scaling_cells import (
    PER_SECOND,
    ScalingCells,
    cell_name,
    cell_place,
    row_of,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.program import PROGRAM
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import NOTHING
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Row
from orchestrator.report.proofs import proof_lists
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import processors
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
    columns = _load_columns(table)
    loads = (_load(table, columns, size, load) for size in table.sizes for load in _LOADS)
    return Sheet(
        title="Loads beside thousands of kprobes, as events of tracefs",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}; half of the events are enabled, through the function tracer",
        ],
        grid=columns.grid(_enabling(table, columns), *loads),
        sentences=list(_load_sentences(table)),
        footnotes=footnotes.all(),
        proofs=proof_lists([cell for cell in table.cells if row_of(cell) == "calls"], cell_place),
    )


@dataclass(frozen=True)
class _Figures:
    """A row: a text for each kernel, and what was published ``without`` the cache and ``with`` it."""

    of_kernel: Callable[[str], str] = lambda _: ""
    published: Mapping[str, str] = field(default_factory=dict)


_LoadColumns = Columns[_Figures]


def _load_columns(table: ScalingCells) -> _LoadColumns:
    def of_kernel(kernel: str) -> Column[_Figures]:
        return Column(kernel, lambda figures: figures.of_kernel(kernel))

    def published(heading: str, which: str) -> Column[_Figures]:
        return Column(heading, lambda figures: figures.published.get(which, ""))

    return Columns(
        [*map(of_kernel, table.kernels), published("published, without", "without"), published("with", "with")]
    )


def _of_cell(cell: Callable[[str], CellRecord | None], text: Callable[[CellRecord], str]) -> _Figures:
    def of_kernel(kernel: str) -> str:
        known = cell(kernel)
        return NOTHING if known is None else text(known)

    return _Figures(of_kernel)


def _enabling(table: ScalingCells, columns: _LoadColumns) -> Iterator[Row]:
    """Guest milliseconds of an event: the mean of the first and of the last five groups; published, that of all."""

    def milliseconds(groups: slice) -> Callable[[CellRecord], str]:
        return lambda cell: f"{1000 * mean(cell.samples[groups]) / PER_SECOND:.3f}" if cell.samples else cell.status

    published = kprobe_cache().published
    each = {which: f"{1000 * published.net_seconds(which) / published.enabled:.1f}" for which in ("without", "with")}
    for size in table.sizes:
        if table.across("enable", size):
            cell = partial(table.cell, row="enable", size=size)
            yield columns.title(f"Enable an event, of {size} defined, ms")
            yield columns.row("  of the first 50", _of_cell(cell, milliseconds(slice(None, _EARLY))))
            yield columns.row("  of the last 50", _of_cell(cell, milliseconds(slice(_EARLY, None))))
            yield columns.row("  of all, published", _Figures(published=each))


def _load(table: ScalingCells, columns: _LoadColumns, size: int, load: str) -> Iterator[Row]:
    def millions(cell: CellRecord) -> str:
        return cell.status if cell.value is None else f"{cell.value / 1e6:.3f}"

    if not table.across(load, size):
        return
    cell = partial(table.cell, row=load, size=size)
    yield columns.title(f"{_LOADS[load].capitalize()}, {size} defined")
    yield columns.row("  a run, million instructions", _of_cell(cell, millions))
    without_events = partial(table.cell, row=_WITHOUT[load], size=size)
    yield columns.row("  the same without events", _of_cell(without_events, millions))
    for cache, name in _CACHES.items():
        if any(_misses(known, cache, ("misses",)) for known in table.across(load, size)):
            yield columns.row(f"  {name} misses", _of_misses(cell, cache))
            for function in kprobe_cache().published.functions:
                label = f"    {function}, %" if function != _LOOKUP else "    the lookup (get_kprobe), %"
                yield columns.row(label, _of_function(cell, cache, function))


def _of_misses(cell: Callable[[str], CellRecord | None], cache: str) -> _Figures:
    def of_kernel(kernel: str) -> str:
        count = _misses(cell(kernel), cache, ("misses",))
        return NOTHING if count is None else str(count)

    return _Figures(of_kernel)


def _of_function(cell: Callable[[str], CellRecord | None], cache: str, function: str) -> _Figures:
    """A function's share of the misses, and the published one."""

    def two_digits(share: float | None) -> str:
        return NOTHING if share is None else f"{share:.2f}"

    misses = kprobe_cache().published.misses
    documented = {which: two_digits(misses[which].get(function)) for which in ("without", "with")}
    return _Figures(lambda kernel: two_digits(_share(cell(kernel), cache, function)), documented)


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
