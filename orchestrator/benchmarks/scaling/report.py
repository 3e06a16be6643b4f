# SPDX-License-Identifier: GPL-2.0-only
"""The report of benchmarks of many probes: findings, charts, loads, and the model of the cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.benchmarks.scaling.layouts import (
    PER_SECOND,
    ScalingCells,
    growth_rows,
    kernels_sheet,
    place_of,
    row_of,
    size_of,
)
from orchestrator.benchmarks.scaling.rows import ScalingRow, kprobe_cache, scaling_benchmark, scaling_row
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.program import PROGRAM
from orchestrator.report.chart import Chart, Curve, CurveChart, CurvePane
from orchestrator.report.kind import Group, Panel, PlainReport, by_kernel, parameters, processors
from orchestrator.report.sheet import (
    NOTHING,
    Finding,
    Footnotes,
    Grid,
    Rank,
    Row,
    Sheet,
    figure,
    hit_facts,
    proof_lists,
    unit_name,
)
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.results.statistics import mean

# What tables of many probes show: on which kernel the most of them cost most, and how one's cost grows.

_MOST_TELLING = ("hit", "enable", "calls")
"""The rows that say most, the most telling first; of a table without them the first row is taken."""


def scaling_findings(group: Group) -> Iterator[Finding]:
    """The dearest and the cheapest kernel or way at the largest number of probes, and the growth of the dearest."""
    table = ScalingCells.of(group)
    measured = [cell for cell in table.cells if cell.value is not None and cell.probe != BASELINE]
    size = max((size_of(cell) for cell in measured), default=0)
    rows = list(dict.fromkeys(row_of(cell) for cell in measured if size_of(cell) == size))
    row = next((one for one in _MOST_TELLING if one in rows), None)
    cells = [cell for cell in measured if size_of(cell) == size and (row is None or row_of(cell) == row)]
    if not cells:
        return
    dearest, cheapest = max(cells, key=_cost_of_one), min(cells, key=_cost_of_one)
    what = "Largest overhead" if row is None else _title(dearest)
    # Cells of one row are of several kernels, otherwise one kernel has several rows.
    first, last = (_title(cell) if row is None else f"on {cell.kernel}" for cell in (dearest, cheapest))
    most = f"{first}, {_figure(dearest)}"
    each = most if cheapest is dearest else f"most {most}; least {last}, {_figure(cheapest)}"
    place = group[0].place(None)
    sentence = f"{what}{f', {place}' if place else ''}, {size} probes: {each}."
    base = (dearest.value or 0.0) - (dearest.overhead or 0.0)
    yield Finding(Rank.LARGEST, sentence, _cost_of_one(dearest) / base if dearest.overhead and base > 0 else 0.0)
    found = table.growth_of_each(dearest.kernel, row_of(dearest))
    if found is not None:
        power = f"grows like the number of probes to the power of {found.exponent:.3f}"
        yield Finding(Rank.OTHER, f"{_title(dearest)}: its cost {power} on {dearest.kernel}.")


def _cost_of_one(cell: CellRecord) -> float:
    """What one costs: beyond the call where that is known."""
    return (cell.value or 0.0) if cell.overhead is None else cell.overhead


def _figure(cell: CellRecord) -> str:
    unit = unit_name(cell.unit)
    exact = cell.overhead is not None and "step" not in cell.parameters
    return f"{figure(_cost_of_one(cell), cell.unit) if exact else f'{_cost_of_one(cell):.1f}'} {unit}"


def _title(cell: CellRecord) -> str:
    row = scaling_row(cell.probe)
    return (row.title if row else cell.probe).capitalize()


# Loads beside thousands of events: what enabling one costs, and whose instructions miss in models of caches.

LOAD_BENCHMARK = "kpcache-load"
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
    footnotes = Footnotes(table.cells, _name_of_load_cell, lambda _: None)
    return Sheet(
        title="Loads beside thousands of kprobes, as events of tracefs",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}; half of the events are enabled, through the function tracer",
        ],
        grid=Grid([*table.kernels, "published, without", "with"], [block for block in _load_blocks(table) if block]),
        sentences=list(_sentences(table)),
        footnotes=footnotes.all(),
        proofs=proof_lists([cell for cell in table.cells if row_of(cell) == "calls"], _name_of_load_cell),
    )


def _load_blocks(table: ScalingCells) -> Iterator[list[Row]]:
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


def _name_of_load_cell(cell: CellRecord) -> str:
    return f"{'none' if cell.probe == BASELINE else row_of(cell)}, {size_of(cell)} on {cell.kernel}"


# The model of the kprobes' hash and its cache: the cost of a lookup, and the cache's hit rate.

MODEL_BENCHMARK = "kpcache-model"
_MODEL = "model"
"""The mechanism of a lookup that touches no probe."""
ACCESS = {0: "Any of the addresses", 95: "95 of 100 times one of 256"}


def model_sheet(group: Group) -> Sheet:
    """Return the panels of one machine and kernel as one table."""
    table, first = ScalingCells.of(group), group[0].first
    footnotes = Footnotes(table.cells, _name_of_model_cell, lambda _: None)
    cache = next((cell.parameters["cache_bytes"] for cell in table.cells if "cache_bytes" in cell.parameters), None)
    return Sheet(
        title="A model of the kprobes' hash and of its cache",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}, kernel {group[0].kernel}; instructions a lookup, interrupts off",
        ],
        grid=Grid([title for title, _ in _columns()], list(_model_blocks(table, footnotes)), together=4),
        sentences=[
            "No kprobe is there: a module has the document's lists and cache, and looks addresses of the kernel's own "
            "functions up in them. The cache has as many sets of four as there are lists.",
            "Instructions are a count, not time: what a walk along a list waits for memory is not in them.",
            *([] if cache is None else [f"The cache of 4096 sets takes {cache} bytes a CPU."]),
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists(
            [cell for cell in table.cells if size_of(cell) == table.sizes[-1]], _name_of_model_cell, _facts
        ),
    )


def _columns() -> list[tuple[str, tuple[int, str]]]:
    rows = _rows()
    return list({(row.bits, row.walk): (row.title, (row.bits, row.walk)) for row in rows.values()}.values())


def _rows() -> dict[str, ScalingRow]:
    benchmark = scaling_benchmark(MODEL_BENCHMARK)
    assert benchmark is not None
    return benchmark.rows


def _model_blocks(table: ScalingCells, footnotes: Footnotes) -> Iterator[Sequence[Row]]:
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


def _name_of_model_cell(cell: CellRecord) -> str:
    row = scaling_row(cell.probe)
    if cell.probe == BASELINE or row is None:
        return f"baseline, {size_of(cell)}" if cell.probe == BASELINE else row_of(cell)
    return f"{row.title}, {size_of(cell)}, {'any' if not row.hot else 'few'}"


def _facts(evidence: Evidence) -> list[str]:
    if evidence.mechanism == _MODEL:
        return [f"{evidence.hits} of {evidence.calls} found their own", "nothing patched"]
    return hit_facts(evidence)


# Thousands of kprobes, and the model of their cache, as curves over the number of probes.

_SECONDS = "seconds of the guest's time"


def kernels_charts(group: Group) -> dict[str, CurveChart]:
    """Return the curves of real kprobes, by the names of their files: the totals, the steps and the hits."""
    table, subtitle = ScalingCells.of(group), _subtitle(group)
    benchmark = table.cells[0].benchmark
    rows = scaling_benchmark(benchmark)
    assert rows is not None
    charts = {
        f"{benchmark}-{name}": CurveChart(
            f"{row.title.capitalize()} kprobes, by their number",
            subtitle,
            [
                CurvePane("kprobes", _SECONDS, _totals(table, name), logarithmic=True),
                CurvePane(f"kprobes, of {table.sizes[-1]} registered", _SECONDS, _steps(table, name)),
            ],
        )
        for name, row in rows.rows.items()
        if row.curve
    }
    charts[f"{benchmark}-hit"] = CurveChart(
        "Cost of a hit, by the number of kprobes",
        subtitle,
        [
            CurvePane("kprobes", f"instructions, {title}", _curves(table, name))
            for name, title in (("hit", "later hits"), ("hit-first", "the first hit"))
        ],
    )
    return charts


def model_charts(group: Group) -> dict[str, CurveChart]:
    """Return the curves of the model of the kprobes' hash, by the name of their file."""
    table, subtitle = ScalingCells.of(group), _subtitle(group)
    rows = scaling_benchmark(MODEL_BENCHMARK)
    assert rows is not None
    (kernel, *_) = table.kernels
    panes = [
        CurvePane(
            "addresses",
            f"instructions a lookup: {title.lower()}",
            _drawable(
                Curve(row.title, _overheads(table, kernel, name)) for name, row in rows.rows.items() if row.hot == hot
            ),
            logarithmic=True,
        )
        for hot, title in ACCESS.items()
    ]
    return {"kpcache-model": CurveChart("A lookup in the model of the kprobes' hash", subtitle, panes)}


def _subtitle(group: Group) -> str:
    first = group[0].first
    return f"measured on {first.cpu}, {processors(first)}, instructions; a second is 10^9 of them"


def _totals(table: ScalingCells, row: str) -> list[Curve]:
    return _drawable(
        Curve(kernel, [(x, y / PER_SECOND) for x, y in table.totals(kernel, row)]) for kernel in table.kernels
    )


def _steps(table: ScalingCells, row: str) -> list[Curve]:
    return _drawable(
        Curve(kernel, [(x, y / PER_SECOND) for x, y in table.steps(kernel, row, table.sizes[-1])])
        for kernel in table.kernels
    )


def _curves(table: ScalingCells, row: str) -> list[Curve]:
    return _drawable(Curve(kernel, _overheads(table, kernel, row)) for kernel in table.kernels)


def _overheads(table: ScalingCells, kernel: str, row: str) -> list[tuple[float, float]]:
    cells = [(size, table.cell(kernel, row, size)) for size in table.sizes]
    return [(float(size), cell.overhead) for size, cell in cells if cell and cell.overhead is not None]


def _drawable(curves: Iterable[Curve]) -> list[Curve]:
    return [curve for curve in curves if len(curve.points) > 1]


# The report of benchmarks of many probes: a column for each kernel, a row for each number of probes.

_APART = ("probes", "image", "channel")


class ScalingReport:
    """A table for each machine and benchmark; of the model, one for each kernel."""

    def owns(self, benchmark: str) -> bool:
        """Whether it is a benchmark of many probes."""
        return scaling_benchmark(benchmark) is not None

    def apart(self, cell: CellRecord) -> tuple[object, ...]:
        """Return the handler, the number of probes, and how the guest was reached."""
        return cell.handler, *parameters(cell, _APART)

    def panels(self, cells: Sequence[CellRecord]) -> Iterable[Panel]:
        """Return a panel for each kernel."""
        return by_kernel(cells)

    def joins(self, panel: Panel, group: Group) -> bool:
        """Whether no cell of the group has the place (kernel, row, number of probes) of a cell of the panel."""
        taken = {place_of(cell) for other in group for cell in other.cells}
        return _shared(panel) == _shared(group[0]) and not any(place_of(cell) in taken for cell in panel.cells)

    def sheet(self, group: Group) -> Sheet:
        """Return the group as one table; a plain one where it has no row of the catalogue, as with a baseline alone."""
        cells = [cell for panel in group for cell in panel.cells]
        if not any(scaling_row(cell.probe) for cell in cells):
            return PlainReport().sheet([Panel(cells, group[0].kernel)])
        if group[0].first.benchmark == LOAD_BENCHMARK:
            return load_sheet(group)
        return model_sheet(group) if _is_model(group[0]) else kernels_sheet(group)

    def findings(self, group: Group) -> Iterable[Finding]:
        """Return on which kernel the most probes cost most, and how the cost of one grows with their number."""
        return scaling_findings(group)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return curves over the number of probes; none without two numbers."""
        if group[0].first.benchmark == LOAD_BENCHMARK:
            return {}
        drawn = model_charts(group) if _is_model(group[0]) else kernels_charts(group)
        return {name: chart for name, chart in drawn.items() if any(pane.curves for pane in chart.panes)}


def _is_model(panel: Panel) -> bool:
    return panel.first.benchmark == MODEL_BENCHMARK


def _shared(panel: Panel) -> tuple[object, ...]:
    """What the numbers of probes in one table have in common; the kernel too for the model, which has one a table."""
    first = panel.first
    kernel = panel.kernel if _is_model(panel) else None
    return first.benchmark, first.cpu, first.smp, first.clock, first.parameters.get("seed"), kernel


REPORT = ScalingReport()
