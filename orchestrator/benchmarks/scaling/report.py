# SPDX-License-Identifier: GPL-2.0-only
"""The report of benchmarks of many probes: findings, charts, loads, and the model of the cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from orchestrator.benchmarks.scaling.rows import (
    EVENTS_BENCHMARK,
    LOAD_BENCHMARK,
    LOOKUPS,
    MODEL_BENCHMARK,
    ScalingRow,
    kprobe_cache,
    scaling_row,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.reference import reference_table
from orchestrator.program import PROGRAM
from orchestrator.report.chart import Chart, Curve, CurveChart, CurvePane
from orchestrator.report.kind import Group, Panel, PlainReport, TableReport, processors
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
    signed_figure,
    unit_name,
)
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.results.statistics import Growth, growth, mean

_Cells = Sequence[CellRecord | None]
"""A cell for each column of a table, where there is one."""


@dataclass(frozen=True)
class ScalingCells:
    """The cells of one machine and benchmark, by kernel, row and number of probes."""

    cells: Sequence[CellRecord]

    @classmethod
    def of(cls, group: Group) -> ScalingCells:
        return cls([cell for panel in group for cell in panel.cells])

    @property
    def kernels(self) -> list[str]:
        """Those without a cache first, of these the one with the fewest lists."""
        found = dict.fromkeys(cell.kernel for cell in self.cells)
        return sorted(found, key=lambda kernel: (self.cache(kernel), self.bits(kernel) or 0))

    @property
    def sizes(self) -> list[int]:
        return sorted({size_of(cell) for cell in self.cells})

    def cell(self, kernel: str, row: str, size: int) -> CellRecord | None:
        """One cell; the baseline's row is BASELINE."""
        return next((one for one in self.cells if place_of(one) == (kernel, row, size)), None)

    def across(self, row: str, size: int) -> _Cells:
        return [self.cell(kernel, row, size) for kernel in self.kernels]

    def bits(self, kernel: str) -> int | None:
        """How many bits a kernel's hash of kprobes has, as it was built; None where no cell has it."""
        found = self._fact(kernel, "hash_bits")
        return found if isinstance(found, int) else None

    def cache(self, kernel: str) -> bool:
        return bool(self._fact(kernel, "kprobe_cache"))

    def totals(self, kernel: str, row: str) -> list[tuple[float, float]]:
        """For each size: the number of probes, and the cost of all of them in the cells' unit."""
        return [steps[-1] for size in self.sizes if (steps := self.steps(kernel, row, size))]

    def steps(self, kernel: str, row: str, size: int) -> list[tuple[float, float]]:
        """For each step of one size: the number of probes done so far, and their cost."""
        cell = self.cell(kernel, row, size)
        step = cell.parameters.get("step") if cell else None
        if cell is None or not isinstance(step, int | float):
            return []
        sums = accumulate(sample * step for sample in cell.samples)
        return [(float((number + 1) * step), total) for number, total in enumerate(sums)]

    def growth_by_steps(self, kernel: str, row: str) -> Growth | None:
        """Growth of the largest size's total cost with the number done, fitted to the cost of one in each step.

        The errors of steps are independent, those of running sums are not. A cost of one that grows like n to the
        power of p makes a total that grows like n to the power of p + 1.
        """
        size = self.largest(kernel, row)
        cell = self.cell(kernel, row, size) if size else None
        # A step's mean cost belongs to the middle of the step, not to its end.
        found = growth([(number + 0.5, sample) for number, sample in enumerate(cell.samples)]) if cell else None
        if found is None:
            return None
        return Growth(1 + found.exponent, found.interval and (1 + found.interval[0], 1 + found.interval[1]))

    def largest(self, kernel: str, row: str) -> int | None:
        """The largest number of probes that there are figures of."""
        return next((size for size in reversed(self.sizes) if self.steps(kernel, row, size)), None)

    def overheads(self, kernel: str, row: str) -> list[tuple[float, float]]:
        """The net cost of one by the number of probes."""
        cells = [(size, self.cell(kernel, row, size)) for size in self.sizes]
        return [(float(size), cell.overhead) for size, cell in cells if cell and cell.overhead is not None]

    def _fact(self, kernel: str, name: str) -> object:
        return next(
            (cell.parameters[name] for cell in self.cells if cell.kernel == kernel and name in cell.parameters), None
        )


def row_of(cell: CellRecord) -> str:
    """The catalogue's name of a cell's row; BASELINE for the cell without a probe."""
    return cell.probe.partition(".")[2] or BASELINE


def size_of(cell: CellRecord) -> int:
    """A cell's number of probes."""
    size = cell.parameters.get("probes", 0)
    return int(size) if isinstance(size, int | float) else 0


def place_of(cell: CellRecord) -> tuple[str, str, int]:
    """A cell's unique place in its table: kernel, row, number of probes."""
    return cell.kernel, row_of(cell), size_of(cell)


# Rows that the tables share: figures of one kind of cell in each column.


def _heads(title: str, columns: int) -> Row:
    return Row(title, [""] * columns, style="bold")


def _growth_rows(label: str, found: Sequence[Growth | None]) -> Iterator[Row]:
    """The exponents of columns, and below them their intervals; no rows where no column has one."""
    if any(found):
        yield Row(f"  {label}", [f"{one.exponent:.3f}" if one else NOTHING for one in found])
    intervals = [one.interval if one else None for one in found]
    if any(intervals):
        yield Row("    its interval", [f"{one[0]:.3f}-{one[1]:.3f}" if one else "" for one in intervals])


def _shown(cell: CellRecord | None, footnotes: Footnotes) -> str:
    """The exact overhead of a hit or a lookup; for other rows an average, printed to a tenth."""
    if cell is None:
        return NOTHING
    if cell.value is None:
        return f"{cell.status}{footnotes.marks(cell)}"
    if "step" in cell.parameters or cell.overhead is None:
        return f"{cell.value if cell.overhead is None else cell.overhead:.1f}"
    return figure(cell.overhead, cell.unit)


# Thousands of kprobes in a kernel, which separates the hash's size from the cache.

_MAIL = "jump-optimization-2009/x86-32"
_HITS = ("hit-alone", "hit-first", "hit")
_PER_SECOND = 1e9
"""Instructions in a second of the guest's time on the exact clock (machine.yaml: shift=0)."""
_MEMORY = {
    "a kprobe and its slot": "probe_bytes_plain",
    "the optimizer's part besides": "probe_bytes_extra",
    "a probe, by the free pages": "probe_bytes_taken",
    "the cache, for each CPU": "cache_bytes",
}


def _kernels_sheet(group: Group) -> Sheet:
    table, first = ScalingCells.of(group), group[0].first
    footnotes, of_events = Footnotes(table.cells, _name, lambda _: None), first.benchmark == EVENTS_BENCHMARK
    title = "Thousands of kprobes, as events of tracefs" if of_events else "Thousands of kprobes"
    # All rows of one size have the same proof.
    proved = [cell for cell in table.cells if row_of(cell) == ("enable" if of_events else "hit")]
    return Sheet(
        title=f"{title}: {', '.join(map(str, table.sizes))}",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}; instructions, of all but hits with the timer's ticks; "
            f"half of the registered probes are enabled{'; less what the shell takes itself' if of_events else ''}",
        ],
        grid=Grid([_heading(table, kernel) for kernel in table.kernels], list(_blocks(table, footnotes))),
        sentences=list(_sentences(table)),
        footnotes=footnotes.all(),
        proofs=proof_lists(proved, _place),
    )


def _heading(table: ScalingCells, kernel: str) -> str:
    bits = table.bits(kernel)
    lists = f": {1 << bits} lists" if bits is not None and bits < 32 else ""
    return f"{kernel}{lists}{', cache' if table.cache(kernel) else ''}"


def _blocks(table: ScalingCells, footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    measured = {row_of(cell) for cell in table.cells}
    blocks = {
        f"{row.title.capitalize()} a probe": _curve(table, name, footnotes)
        for name, row in kprobe_cache().benchmarks[table.cells[0].benchmark].rows.items()
        if row.curve and name in measured
    }
    if measured & set(_HITS):
        blocks["A hit"] = _hits(table, footnotes)
    blocks["Effects on a hit"] = _effects(table)
    blocks[f"Enable, of {table.sizes[-1]} registered"] = _steps(table)
    blocks["Memory, bytes"] = _memory(table)
    for title, rows in blocks.items():
        block = [_heads(title, len(table.kernels)), *rows]
        if len(block) > 1:
            yield block


def _curve(table: ScalingCells, name: str, footnotes: Footnotes) -> Iterator[Row]:
    for size in table.sizes:
        yield Row(f"{size} registered", [_shown(cell, footnotes) for cell in table.across(name, size)])
    totals = [table.totals(kernel, name) for kernel in table.kernels]
    yield Row("  the most, guest seconds", [f"{t[-1][1] / _PER_SECOND:.4g}" if t else NOTHING for t in totals])
    yield from _growth_rows("exponent, by the number", [growth(points) for points in totals])
    yield from _growth_rows("exponent, by the steps", [table.growth_by_steps(kernel, name) for kernel in table.kernels])


def _hits(table: ScalingCells, footnotes: Footnotes) -> Iterator[Row]:
    alone = [
        next((cell for size in table.sizes if (cell := table.cell(kernel, "hit-alone", size))), None)
        for kernel in table.kernels
    ]
    yield Row("without other probes", [_shown(cell, footnotes) for cell in alone])
    for size in table.sizes:
        for label, name in (("the first", "hit-first"), ("later ones", "hit")):
            yield Row(f"{label}, among {size}", [_shown(cell, footnotes) for cell in table.across(name, size)])
    later = [growth(table.overheads(kernel, "hit")) for kernel in table.kernels]
    yield from _growth_rows("exponent, later ones", later)


def _effects(table: ScalingCells) -> Iterator[Row]:
    """The effect of the hash's size, and separately of the cache with an equal size."""
    plain = [kernel for kernel in table.kernels if not table.cache(kernel)]
    same = {
        kernel: next((other for other in plain if table.bits(other) == table.bits(kernel)), None)
        for kernel in table.kernels
        if table.cache(kernel)
    }
    for size in table.sizes:
        for label, others in (("more lists", dict.fromkeys(plain[1:], next(iter(plain), None))), ("the cache", same)):
            texts = [_difference(table, kernel, others.get(kernel), size) for kernel in table.kernels]
            if set(texts) != {NOTHING}:
                yield Row(f"{label}, among {size}", texts)


def _difference(table: ScalingCells, kernel: str, other: str | None, size: int) -> str:
    one, two = table.cell(kernel, "hit", size), table.cell(other, "hit", size) if other else None
    if one is None or two is None or one.overhead is None or two.overhead is None:
        return NOTHING
    return signed_figure(one.overhead - two.overhead, one.unit)


def _steps(table: ScalingCells) -> Iterator[Row]:
    cells = table.across("enable", table.sizes[-1])
    for number in range(max((len(cell.samples) for cell in cells if cell), default=0)):
        step = next(cell.parameters["step"] for cell in cells if cell and len(cell.samples) > number)
        assert isinstance(step, int | float)
        yield Row(
            f"{int(step) * number + 1} to {int(step) * (number + 1)}",
            [f"{cell.samples[number]:.1f}" if cell and cell.samples else NOTHING for cell in cells],
        )


def _memory(table: ScalingCells) -> Iterator[Row]:
    sizes = [(kernel, table.largest(kernel, "register")) for kernel in table.kernels]
    cells = [table.cell(kernel, "register", size) if size else None for kernel, size in sizes]
    for label, name in _MEMORY.items():
        texts = [str(cell.parameters.get(name, NOTHING)) if cell else NOTHING for cell in cells]
        if set(texts) != {NOTHING}:
            yield Row(label, texts)


def _sentences(table: ScalingCells) -> Iterator[str]:
    published = kprobe_cache().published
    without, with_cache = published.net_seconds("without"), published.net_seconds("with")
    yield (
        f"Published: {kprobe_cache().source}: of {published.registered} kprobes, registered through the function "
        f"tracer, enabling {published.enabled} took {published.seconds['without']} s with 4096 lists and "
        f"{published.seconds['with']} s with the cache besides, {published.pauses} pauses of "
        f"{published.pause_seconds} s included; without them {without} and {with_cache} s. "
        f"The cache takes {published.cache_kib_per_cpu} KiB a CPU on 64 bits."
    )
    yield (
        "Instructions are a count, not time: what a lookup waits for memory is not in them, and that is what the cache "
        "is to save."
    )
    if any(row_of(cell) in _HITS for cell in table.cells):
        yield "A hit's figures are what it costs more than the call; what is hit is spread evenly among the others."
    if any("probe_bytes_extra" in cell.parameters for cell in table.cells):
        extra = reference_table(_MAIL).extra_bytes["kprobe+optimized"]
        yield f"Published of the optimizer's part, in the mail of 2009: {extra} bytes more on x86-32, 3 times as much."
    left_out = {
        cell.kernel: cell.parameters.get("left_out") for cell in table.cells if size_of(cell) == table.sizes[-1]
    }
    numbers = ", ".join(f"{number} on {kernel}" for kernel, number in left_out.items() if number is not None)
    if numbers:
        yield f"Registered, but not enabled, because enabling itself hits them: {numbers}."


def _place(cell: CellRecord) -> str:
    return f"{size_of(cell)} on {cell.kernel}"


def _name(cell: CellRecord) -> str:
    row = scaling_row(cell.probe)
    title = "baseline" if cell.probe == BASELINE else row.title if row else cell.probe
    return f"{title}, {_place(cell)}"


# What tables of many probes show: on which kernel the most of them cost most, and how one's cost grows.

_MOST_TELLING = ("hit", "enable", "calls")
"""The rows that say most, the most telling first; of a table without them the first row is taken."""


def _findings(group: Group) -> Iterator[Finding]:
    table = ScalingCells.of(group)
    measured = [cell for cell in table.cells if cell.value is not None and cell.probe != BASELINE]
    size = max((size_of(cell) for cell in measured), default=0)
    cells = [cell for cell in measured if size_of(cell) == size]
    row = next((one for one in _MOST_TELLING if any(row_of(cell) == one for cell in cells)), None)
    cells = [cell for cell in cells if row is None or row_of(cell) == row]
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
    found = growth(table.overheads(dearest.kernel, row_of(dearest)))
    if found is not None:
        power = f"grows like the number of probes to the power of {found.exponent:.3f}"
        yield Finding(Rank.OTHER, f"{_title(dearest)}: its cost {power} on {dearest.kernel}.")


def _cost_of_one(cell: CellRecord) -> float:
    """What one costs: beyond the call where that is known."""
    return (cell.value or 0.0) if cell.overhead is None else cell.overhead


def _figure(cell: CellRecord) -> str:
    exact = cell.overhead is not None and "step" not in cell.parameters
    cost = _cost_of_one(cell)
    return f"{figure(cost, cell.unit) if exact else f'{cost:.1f}'} {unit_name(cell.unit)}"


def _title(cell: CellRecord) -> str:
    row = scaling_row(cell.probe)
    return (row.title if row else cell.probe).capitalize()


# Loads beside thousands of events: what enabling one costs, and whose instructions miss in models of caches.

_CACHES = {"l1d": "L1D", "l2": "L2"}
_LOADS = {"calls": "small system calls", "files": "processes and files"}
_WITHOUT = {"calls": BASELINE, "files": "files-without"}
_LOOKUP = LOOKUPS[0]
_HALF = 50  # per cent
_EARLY = 5
"""Groups of events that are enabled before all others."""


def _load_sheet(group: Group) -> Sheet:
    table, first = ScalingCells.of(group), group[0].first
    footnotes = Footnotes(table.cells, _name_of_load_cell, lambda _: None)
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
        proofs=proof_lists([cell for cell in table.cells if row_of(cell) == "calls"], _name_of_load_cell),
    )


def _enabling(table: ScalingCells) -> Iterator[Row]:
    """Five groups before all others and five behind them, in guest milliseconds each; published: the mean of all."""
    published = kprobe_cache().published
    each = [f"{1000 * published.net_seconds(which) / published.enabled:.1f}" for which in ("without", "with")]
    for size in table.sizes:
        cells = table.across("enable", size)
        if any(cells):
            yield _heads(f"Enable an event, of {size} defined, ms", len(cells) + 2)
            yield Row("  of the first 50", [*(_milliseconds(cell, slice(None, _EARLY)) for cell in cells), "", ""])
            yield Row("  of the last 50", [*(_milliseconds(cell, slice(_EARLY, None)) for cell in cells), "", ""])
            yield Row("  of all, published", [*([""] * len(cells)), *each])


def _load(table: ScalingCells, size: int, load: str) -> Iterator[Row]:
    cells = table.across(load, size)
    if not any(cells):
        return
    yield _heads(f"{_LOADS[load].capitalize()}, {size} defined", len(cells) + 2)
    yield Row("  a run, million instructions", [*map(_millions, cells), "", ""])
    yield Row("  the same without events", [*map(_millions, table.across(_WITHOUT[load], size)), "", ""])
    published = kprobe_cache().published
    for cache, name in _CACHES.items():
        misses = [_misses(cell, cache, ("misses",)) for cell in cells]
        if not any(misses):
            continue
        yield Row(f"  {name} misses", [*(NOTHING if one is None else str(one) for one in misses), "", ""])
        for function in published.functions:
            shares = [_share(cell, cache, function) for cell in cells]
            documented = [published.misses[which].get(function) for which in ("without", "with")]
            label = f"    {function}, %" if function != _LOOKUP else "    the lookup (get_kprobe), %"
            yield Row(label, [NOTHING if one is None else f"{one:.2f}" for one in (*shares, *documented)])


def _share(cell: CellRecord | None, cache: str, function: str) -> float | None:
    """A function's share of a cell's misses in per cent; None where no caches were modelled."""
    of_all = _misses(cell, cache, ("misses",))
    # On a kernel with the cache the lookup has other functions.
    own = _misses(cell, cache, LOOKUPS if function == _LOOKUP else (function,))
    return None if not of_all or own is None else 100 * own / of_all


def _misses(cell: CellRecord | None, cache: str, names: Sequence[str]) -> int | None:
    found = [cell.parameters.get(f"{cache}_{name}") for name in names] if cell else []
    known = [int(one) for one in found if isinstance(one, int | float)]
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
    # What the document says of the lookup, with and without the cache, computed from the largest number of events.
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
            most = "holds" if without > _HALF else "does not hold"
            yield (
                f"{title.capitalize()}, {name}: without the cache most misses are the lookup's: {most} "
                f"({without:.1f} %, published {before}); the cache lowers its share: {falls} (to {within:.1f} %, "
                f"published {after})."
            )


def _millions(cell: CellRecord | None) -> str:
    if cell is None:
        return NOTHING
    return cell.status if cell.value is None else f"{cell.value / 1e6:.3f}"


def _milliseconds(cell: CellRecord | None, groups: slice) -> str:
    if cell is None:
        return NOTHING
    return f"{1000 * mean(cell.samples[groups]) / _PER_SECOND:.3f}" if cell.samples else cell.status


def _name_of_load_cell(cell: CellRecord) -> str:
    return f"{row_of(cell)}, {_place(cell)}"


# The model of the kprobes' hash and its cache: the cost of a lookup, and the cache's hit rate.

_ACCESS = {0: "Any of the addresses", 95: "95 of 100 times one of 256"}


def _model_sheet(group: Group) -> Sheet:
    table, first = ScalingCells.of(group), group[0].first
    footnotes = Footnotes(table.cells, _name_of_model_cell, lambda _: None)
    cache = next((cell.parameters["cache_bytes"] for cell in table.cells if "cache_bytes" in cell.parameters), None)
    return Sheet(
        title="A model of the kprobes' hash and of its cache",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}, kernel {group[0].kernel}; instructions a lookup, interrupts off",
        ],
        grid=Grid([row.title for row in _model_rows(0).values()], list(_model_blocks(table, footnotes)), together=4),
        sentences=[
            "No kprobe is there: a module has the document's lists and cache, and looks addresses of the kernel's own "
            "functions up in them. The cache has as many sets of four as there are lists.",
            "Instructions are a count, not time: what a walk along a list waits for memory is not in them.",
            *([] if cache is None else [f"The cache of 4096 sets takes {cache} bytes a CPU."]),
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists(
            [cell for cell in table.cells if size_of(cell) == table.sizes[-1]], _name_of_model_cell, _model_facts
        ),
    )


def _model_rows(hot: int) -> Mapping[str, ScalingRow]:
    """A row for each column: for each way of access they are in the same order."""
    rows = kprobe_cache().benchmarks[MODEL_BENCHMARK].rows
    return {name: row for name, row in rows.items() if row.hot == hot}


def _model_blocks(table: ScalingCells, footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    (kernel, *_) = table.kernels
    for hot, title in _ACCESS.items():
        names = list(_model_rows(hot))
        rows = [_heads(title, len(names))]
        for size in table.sizes:
            cells = [table.cell(kernel, name, size) for name in names]
            if any(cells):
                rows.append(Row(f"{size} addresses", [_shown(cell, footnotes) for cell in cells]))
                rows.append(Row("  found in the cache", [_found(cell) for cell in cells]))
        rows += _growth_rows("exponent", [growth(table.overheads(kernel, name)) for name in names])
        if len(rows) > 2:
            yield rows


def _found(cell: CellRecord | None) -> str:
    if cell is None or "cache_hits" not in cell.parameters:
        return ""
    hits, lookups = cell.parameters["cache_hits"], cell.parameters["lookups"]
    assert isinstance(hits, int | float)
    assert isinstance(lookups, int | float)
    return f"{100 * hits / lookups:.1f} %" if lookups else NOTHING


def _name_of_model_cell(cell: CellRecord) -> str:
    row = scaling_row(cell.probe)
    if row is None:
        return f"baseline, {size_of(cell)}" if cell.probe == BASELINE else row_of(cell)
    return f"{row.title}, {size_of(cell)}, {'few' if row.hot else 'any'}"


def _model_facts(evidence: Evidence) -> list[str]:
    if evidence.mechanism == "model":
        return [f"{evidence.hits} of {evidence.calls} found their own", "nothing patched"]
    return hit_facts(evidence)


# Thousands of kprobes, and the model of their cache, as curves over the number of probes.

_SECONDS = "seconds of the guest's time"


def _kernels_charts(table: ScalingCells, subtitle: str) -> dict[str, CurveChart]:
    """The curves of real kprobes, by the names of their files: the totals, the steps and the hits."""

    def by_kernel(curves: Mapping[str, list[tuple[float, float]]], scale: float = _PER_SECOND) -> list[Curve]:
        return _drawable({kernel: [(x, y / scale) for x, y in points] for kernel, points in curves.items()})

    benchmark, most = table.cells[0].benchmark, table.sizes[-1]
    charts = {}
    for name, row in kprobe_cache().benchmarks[benchmark].rows.items():
        if row.curve:
            totals = by_kernel({kernel: table.totals(kernel, name) for kernel in table.kernels})
            steps = by_kernel({kernel: table.steps(kernel, name, most) for kernel in table.kernels})
            charts[f"{benchmark}-{name}"] = CurveChart(
                f"{row.title.capitalize()} kprobes, by their number",
                subtitle,
                [
                    CurvePane("kprobes", _SECONDS, totals, logarithmic=True),
                    CurvePane(f"kprobes, of {most} registered", _SECONDS, steps),
                ],
            )
    hits = [
        CurvePane(
            "kprobes",
            f"instructions, {title}",
            by_kernel({kernel: table.overheads(kernel, name) for kernel in table.kernels}, 1),
        )
        for name, title in (("hit", "later hits"), ("hit-first", "the first hit"))
    ]
    charts[f"{benchmark}-hit"] = CurveChart("Cost of a hit, by the number of kprobes", subtitle, hits)
    return charts


def _model_charts(table: ScalingCells, subtitle: str) -> dict[str, CurveChart]:
    """The curves of the model of the kprobes' hash, by the name of their file."""
    (kernel, *_) = table.kernels
    panes = [
        CurvePane(
            "addresses",
            f"instructions a lookup: {title.lower()}",
            _drawable({row.title: table.overheads(kernel, name) for name, row in _model_rows(hot).items()}),
            logarithmic=True,
        )
        for hot, title in _ACCESS.items()
    ]
    return {MODEL_BENCHMARK: CurveChart("A lookup in the model of the kprobes' hash", subtitle, panes)}


def _drawable(curves: Mapping[str, list[tuple[float, float]]]) -> list[Curve]:
    return [Curve(label, points) for label, points in curves.items() if len(points) > 1]


class ScalingReport(TableReport):
    """A table for each machine and benchmark; of the model, one for each kernel."""

    APART = ("probes", "image", "channel")

    def owns(self, benchmark: str) -> bool:
        return benchmark in kprobe_cache().benchmarks

    def joins(self, panel: Panel, group: Group) -> bool:
        """Whether no cell of the group has the place (kernel, row, number of probes) of a cell of the panel."""
        taken = {place_of(cell) for other in group for cell in other.cells}
        return _shared(panel) == _shared(group[0]) and not any(place_of(cell) in taken for cell in panel.cells)

    def sheet(self, group: Group) -> Sheet:
        """Return the group as one table; a plain one where it has no row of the catalogue, as with a baseline alone."""
        cells = [cell for panel in group for cell in panel.cells]
        if not any(scaling_row(cell.probe) for cell in cells):
            return PlainReport().sheet([Panel(cells, group[0].kernel)])
        sheets = {LOAD_BENCHMARK: _load_sheet, MODEL_BENCHMARK: _model_sheet}
        return sheets.get(group[0].first.benchmark, _kernels_sheet)(group)

    def findings(self, group: Group) -> Iterable[Finding]:
        return _findings(group)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return curves over the number of probes; none without two numbers."""
        first = group[0].first
        if first.benchmark == LOAD_BENCHMARK:
            return {}
        subtitle = f"measured on {first.cpu}, {processors(first)}, instructions; a second is 10^9 of them"
        draw = _model_charts if first.benchmark == MODEL_BENCHMARK else _kernels_charts
        drawn = draw(ScalingCells.of(group), subtitle)
        return {name: chart for name, chart in drawn.items() if any(pane.curves for pane in chart.panes)}


def _shared(panel: Panel) -> tuple[object, ...]:
    """What the numbers of probes in one table have in common; the kernel too for the model, which has one a table."""
    first = panel.first
    kernel = panel.kernel if first.benchmark == MODEL_BENCHMARK else None
    return first.benchmark, first.cpu, first.smp, first.clock, first.parameters.get("seed"), kernel


REPORT = ScalingReport()
