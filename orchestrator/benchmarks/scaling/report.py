# SPDX-License-Identifier: GPL-2.0-only
"""The report of many probes: a column for each kernel, the growth of costs with the number of probes, curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate

from orchestrator.benchmarks.scaling.rows import EVENTS_BENCHMARK, LOAD_BENCHMARK, LOOKUPS, kprobe_cache, scaling_row
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.reference import reference_table
from orchestrator.program import PROGRAM
from orchestrator.report.chart import Chart, Curve, CurveChart, CurvePane
from orchestrator.report.kind import Panel, PlainReport, TableReport, processors
from orchestrator.report.sheet import (
    NOTHING,
    Finding,
    Footnotes,
    Grid,
    Rank,
    Row,
    Sheet,
    figure,
    proof_lists,
    signed_figure,
    unit_name,
)
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import Growth, growth, mean

_Cells = Sequence[CellRecord | None]
"""A cell for each column of a table, where there is one."""
_Points = list[tuple[float, float]]


@dataclass(frozen=True)
class ScalingCells:
    """The cells of one machine and benchmark, by kernel, row and number of probes."""

    cells: Sequence[CellRecord]

    @classmethod
    def of(cls, panels: Sequence[Panel]) -> ScalingCells:
        return cls([cell for panel in panels for cell in panel.cells])

    @cached_property
    def kernels(self) -> list[str]:
        """The kernels in the order of columns: without the cache first, then by the number of lists."""
        found = dict.fromkeys(cell.kernel for cell in self.cells)
        return sorted(found, key=lambda kernel: (self.cache(kernel), self.bits(kernel) or 0))

    @cached_property
    def sizes(self) -> list[int]:
        return sorted({size_of(cell) for cell in self.cells})

    @cached_property
    def _by_place(self) -> Mapping[tuple[str, str, int], CellRecord]:
        return {place_of(cell): cell for cell in self.cells}

    def cell(self, kernel: str, row: str, size: int) -> CellRecord | None:
        """One cell; the baseline's row is BASELINE."""
        return self._by_place.get((kernel, row, size))

    def across(self, row: str, size: int) -> _Cells:
        return [self.cell(kernel, row, size) for kernel in self.kernels]

    def bits(self, kernel: str) -> int | None:
        """The bits of a kernel's hash of kprobes; None where no cell has them."""
        found = (parameters.HASH_BITS.of(cell) for cell in self.cells if cell.kernel == kernel)
        return next((bits for bits in found if bits is not None), None)

    def cache(self, kernel: str) -> bool:
        return any(cell.kernel == kernel and cell.parameters.get(parameters.KPROBE_CACHE) for cell in self.cells)

    def totals(self, kernel: str, row: str) -> _Points:
        """For each size: the number of probes, and the cost of all of them in the cells' unit."""
        return [steps[-1] for size in self.sizes if (steps := self.steps(kernel, row, size))]

    def steps(self, kernel: str, row: str, size: int) -> _Points:
        """For each step of one size: the number of probes done so far, and their cost."""
        cell = self.cell(kernel, row, size)
        step = parameters.STEP.of(cell) if cell else None
        if cell is None or step is None:
            return []
        sums = accumulate(sample * step for sample in cell.samples)
        return [(float((number + 1) * step), total) for number, total in enumerate(sums)]

    def largest(self, kernel: str, row: str) -> CellRecord | None:
        cells = (self.cell(kernel, row, size) for size in reversed(self.sizes) if self.steps(kernel, row, size))
        return next(cells, None)

    def growth_by_steps(self, kernel: str, row: str) -> Growth | None:
        """Growth of the total cost at the largest size, fitted to the cost of one probe in each step.

        The errors of steps are independent, those of running sums are not. If the cost of one grows like n to the power
        of p, the total grows like n to the power of p + 1.
        """
        cell = self.largest(kernel, row)
        # The mean cost of a step is that at the middle of the step.
        found = growth([(number + 0.5, sample) for number, sample in enumerate(cell.samples)]) if cell else None
        if found is None:
            return None
        return Growth(1 + found.exponent, found.interval and (1 + found.interval[0], 1 + found.interval[1]))

    def overheads(self, kernel: str, row: str) -> _Points:
        cells = [(size, self.cell(kernel, row, size)) for size in self.sizes]
        return [(float(size), cell.overhead) for size, cell in cells if cell and cell.overhead is not None]


def row_of(cell: CellRecord) -> str:
    """The catalogue's name of a cell's row; BASELINE for the cell without a probe."""
    return cell.probe.partition(".")[2] or BASELINE


def size_of(cell: CellRecord) -> int:
    """A cell's number of probes."""
    return parameters.PROBES.of(cell) or 0


def place_of(cell: CellRecord) -> tuple[str, str, int]:
    """The unique place of a cell in its table: kernel, row, number of probes."""
    return cell.kernel, row_of(cell), size_of(cell)


def _title(cell: CellRecord) -> str:
    row = scaling_row(cell.probe)
    return "baseline" if cell.probe == BASELINE else row.title if row else cell.probe


def _place(cell: CellRecord) -> str:
    return f"{size_of(cell)} on {cell.kernel}"


def _name(cell: CellRecord) -> str:
    return f"{_title(cell)}, {_place(cell)}"


def _cost_of_one(cell: CellRecord) -> float:
    return (cell.value or 0.0) if cell.overhead is None else cell.overhead


def _figure(cell: CellRecord) -> str:
    """The cost of a hit, which is exact; the average cost of another row, to a tenth."""
    is_exact = cell.overhead is not None and parameters.STEP not in cell.parameters
    return figure(cell.overhead, cell.unit) if is_exact else f"{_cost_of_one(cell):.1f}"


def _costs(label: str, cells: _Cells, footnotes: Footnotes) -> Row:
    def text(cell: CellRecord | None) -> str:
        if cell is None:
            return NOTHING
        return f"{cell.status}{footnotes.marks(cell)}" if cell.value is None else _figure(cell)

    return Row(label, [text(cell) for cell in cells])


def _growth_rows(label: str, found: Sequence[Growth | None]) -> Iterator[Row]:
    if any(found):
        yield Row(f"  {label}", [f"{one.exponent:.3f}" if one else NOTHING for one in found])
    intervals = [one.interval if one else None for one in found]
    if any(intervals):
        yield Row("    its interval", [f"{one[0]:.3f}-{one[1]:.3f}" if one else "" for one in intervals])


def _unless_empty(label: str, texts: Sequence[str]) -> Iterator[Row]:
    if set(texts) != {NOTHING}:
        yield Row(label, texts)


# The table of thousands of kprobes, which separates the effect of the hash's size from that of the cache.

_HITS = ("hit-alone", "hit-first", "hit")
_PER_SECOND = 1e9
"""Instructions in a second of the guest's time on the exact clock (machine.yaml: shift=0)."""


def _kernels_sheet(table: ScalingCells) -> Sheet:
    first = table.cells[0]
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
        block = [Row(title, [""] * len(table.kernels), style="bold"), *rows]
        if len(block) > 1:
            yield block


def _curve(table: ScalingCells, name: str, footnotes: Footnotes) -> Iterator[Row]:
    for size in table.sizes:
        yield _costs(f"{size} registered", table.across(name, size), footnotes)
    totals = [table.totals(kernel, name) for kernel in table.kernels]
    yield Row("  the most, guest seconds", [f"{t[-1][1] / _PER_SECOND:.4g}" if t else NOTHING for t in totals])
    yield from _growth_rows("exponent, by the number", [growth(points) for points in totals])
    yield from _growth_rows("exponent, by the steps", [table.growth_by_steps(kernel, name) for kernel in table.kernels])


def _hits(table: ScalingCells, footnotes: Footnotes) -> Iterator[Row]:
    by_kernel = zip(*(table.across("hit-alone", size) for size in table.sizes), strict=True)
    yield _costs("without other probes", [next(filter(None, cells), None) for cells in by_kernel], footnotes)
    for size in table.sizes:
        for label, name in (("the first", "hit-first"), ("later ones", "hit")):
            yield _costs(f"{label}, among {size}", table.across(name, size), footnotes)
    later = [growth(table.overheads(kernel, "hit")) for kernel in table.kernels]
    yield from _growth_rows("exponent, later ones", later)


def _effects(table: ScalingCells) -> Iterator[Row]:
    plain = [kernel for kernel in table.kernels if not table.cache(kernel)]
    same = {
        kernel: next((other for other in plain if table.bits(other) == table.bits(kernel)), None)
        for kernel in table.kernels
        if table.cache(kernel)
    }

    def difference(kernel: str, other: str | None, size: int) -> str:
        one, two = table.cell(kernel, "hit", size), table.cell(other, "hit", size) if other else None
        if one is None or two is None or one.overhead is None or two.overhead is None:
            return NOTHING
        return signed_figure(one.overhead - two.overhead, one.unit)

    for size in table.sizes:
        for label, others in (("more lists", dict.fromkeys(plain[1:], next(iter(plain), None))), ("the cache", same)):
            texts = [difference(kernel, others.get(kernel), size) for kernel in table.kernels]
            yield from _unless_empty(f"{label}, among {size}", texts)


def _steps(table: ScalingCells) -> Iterator[Row]:
    cells = table.across("enable", table.sizes[-1])
    for number in range(max((len(cell.samples) for cell in cells if cell), default=0)):
        step = next(parameters.STEP.of(cell) or 0 for cell in cells if cell and len(cell.samples) > number)
        yield Row(
            f"{step * number + 1} to {step * (number + 1)}",
            [f"{cell.samples[number]:.1f}" if cell and cell.samples else NOTHING for cell in cells],
        )


def _memory(table: ScalingCells) -> Iterator[Row]:
    cells = [table.largest(kernel, "register") for kernel in table.kernels]
    memory = {
        "a kprobe and its slot": parameters.PROBE_BYTES_PLAIN,
        "the optimizer's part besides": parameters.PROBE_BYTES_EXTRA,
        "a probe, by the free pages": parameters.PROBE_BYTES_TAKEN,
        "the cache, for each CPU": parameters.CACHE_BYTES,
    }
    for label, name in memory.items():
        yield from _unless_empty(
            label, [str(cell.parameters.get(name, NOTHING)) if cell else NOTHING for cell in cells]
        )


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
    if any(parameters.PROBE_BYTES_EXTRA in cell.parameters for cell in table.cells):
        extra = reference_table("jump-optimization-2009/x86-32").extra_bytes["kprobe+optimized"]
        yield f"Published of the optimizer's part, in the mail of 2009: {extra} bytes more on x86-32, 3 times as much."
    left_out = {cell.kernel: parameters.LEFT_OUT.of(cell) for cell in table.cells if size_of(cell) == table.sizes[-1]}
    numbers = ", ".join(f"{number} on {kernel}" for kernel, number in left_out.items() if number is not None)
    if numbers:
        yield f"Registered, but not enabled, because enabling itself hits them: {numbers}."


# The table of loads beside thousands of events: the cost of enabling one, and the functions that miss in the caches.

_CACHES = {"l1d": "L1D", "l2": "L2"}
_LOADS = {"calls": "small system calls", "files": "processes and files"}
_WITHOUT = {"calls": BASELINE, "files": "files-without"}
_LOOKUP = LOOKUPS[0]
_EARLY = 5
"""Groups of events that are enabled before all others."""


def _load_sheet(table: ScalingCells) -> Sheet:
    first, footnotes = table.cells[0], Footnotes(table.cells, _name, lambda _: None)
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
        proofs=proof_lists([cell for cell in table.cells if row_of(cell) == "calls"], _place),
    )


def _beside(label: str, cells: _Cells, text: Callable[[CellRecord], str]) -> Row:
    return Row(label, [*(NOTHING if cell is None else text(cell) for cell in cells), "", ""])


def _enabling(table: ScalingCells) -> Iterator[Row]:
    """Guest milliseconds of an event: the mean of the first and of the last five groups; published, that of all."""

    def milliseconds(groups: slice) -> Callable[[CellRecord], str]:
        return lambda cell: f"{1000 * mean(cell.samples[groups]) / _PER_SECOND:.3f}" if cell.samples else cell.status

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


_MOST_TELLING = ("hit", "enable", "calls")
"""The rows for findings, the most important first; without one of them, all rows are compared."""


class ScalingReport(TableReport):
    """A table for each machine and benchmark, with all its numbers of probes."""

    KEY_PARAMETERS = (parameters.PROBES, parameters.IMAGE, parameters.CHANNEL)

    def handles(self, benchmark: str) -> bool:
        return benchmark in kprobe_cache().benchmarks

    def same_table(self, panel: Panel, panels: Sequence[Panel]) -> bool:
        """Whether no cell of ``panels`` has the place (kernel, row, number of probes) of a cell of the panel."""
        first, other = panel.first, panels[0].first
        names = ("benchmark", "cpu", "smp", "clock")
        are_alike = all(getattr(first, name) == getattr(other, name) for name in names)
        taken = {place_of(cell) for other in panels for cell in other.cells}
        has_seed = parameters.SEED.of(first) == parameters.SEED.of(other)
        return are_alike and has_seed and not any(place_of(cell) in taken for cell in panel.cells)

    def sheet(self, panels: Sequence[Panel]) -> Sheet:
        """Return the table of ``panels``; a plain one if no row is in the catalogue, as with a baseline alone."""
        table = ScalingCells.of(panels)
        if not any(scaling_row(cell.probe) for cell in table.cells):
            return PlainReport().sheet([Panel(table.cells, panels[0].kernel)])
        return _load_sheet(table) if panels[0].first.benchmark == LOAD_BENCHMARK else _kernels_sheet(table)

    def findings(self, panels: Sequence[Panel]) -> Iterator[Finding]:
        table = ScalingCells.of(panels)
        measured = [cell for cell in table.cells if cell.value is not None and cell.probe != BASELINE]
        size = max((size_of(cell) for cell in measured), default=0)
        cells = [cell for cell in measured if size_of(cell) == size]
        row = next((one for one in _MOST_TELLING if any(row_of(cell) == one for cell in cells)), None)
        cells = [cell for cell in cells if row is None or row_of(cell) == row]
        if not cells:
            return
        dearest, cheapest = max(cells, key=_cost_of_one), min(cells, key=_cost_of_one)
        title = _title(dearest).capitalize()
        # Cells of one row differ in their kernel, others in their row.
        first, last = (
            f"{_title(cell).capitalize() if row is None else f'on {cell.kernel}'}, {_figure(cell)} "
            f"{unit_name(cell.unit)}"
            for cell in (dearest, cheapest)
        )
        each = first if cheapest is dearest else f"most {first}; least {last}"
        place = panels[0].place(None)
        what = f"{'Largest overhead' if row is None else title}{f', {place}' if place else ''}"
        base = (dearest.value or 0.0) - (dearest.overhead or 0.0)
        weight = _cost_of_one(dearest) / base if dearest.overhead and base > 0 else 0.0
        yield Finding(Rank.LARGEST, f"{what}, {size} probes: {each}.", weight)
        found = growth(table.overheads(dearest.kernel, row_of(dearest)))
        if found is not None:
            power = f"grows like the number of probes to the power of {found.exponent:.3f}"
            yield Finding(Rank.OTHER, f"{title}: its cost {power} on {dearest.kernel}.")

    def charts(self, panels: Sequence[Panel]) -> Mapping[str, Chart]:
        first, table = panels[0].first, ScalingCells.of(panels)
        if first.benchmark == LOAD_BENCHMARK:
            return {}

        def curves(points: Callable[[str], _Points], scale: float = 1) -> list[Curve]:
            found = {kernel: [(at, cost / scale) for at, cost in points(kernel)] for kernel in table.kernels}
            return [Curve(kernel, scaled) for kernel, scaled in found.items() if len(scaled) > 1]

        most, seconds = table.sizes[-1], "seconds of the guest's time"
        panes: dict[str, tuple[str, list[CurvePane]]] = {}
        for name, row in kprobe_cache().benchmarks[first.benchmark].rows.items():
            if row.curve:
                totals = curves(partial(table.totals, row=name), _PER_SECOND)
                steps = curves(partial(table.steps, row=name, size=most), _PER_SECOND)
                panes[name] = (
                    f"{row.title.capitalize()} kprobes, by their number",
                    [
                        CurvePane("kprobes", seconds, totals, logarithmic=True),
                        CurvePane(f"kprobes, of {most} registered", seconds, steps),
                    ],
                )
        hits = [
            CurvePane("kprobes", f"instructions, {title}", curves(partial(table.overheads, row=name)))
            for name, title in (("hit", "later hits"), ("hit-first", "the first hit"))
        ]
        panes["hit"] = "Cost of a hit, by the number of kprobes", hits
        subtitle = f"measured on {first.cpu}, {processors(first)}, instructions; a second is 10^9 of them"
        return {
            f"{first.benchmark}-{name}": CurveChart(title, subtitle, drawn)
            for name, (title, drawn) in panes.items()
            if any(one.curves for one in drawn)
        }


REPORT = ScalingReport()
