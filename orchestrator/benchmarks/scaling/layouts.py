# SPDX-License-Identifier: GPL-2.0-only
"""The table of thousands of kprobes: its cells by kernel, row and number of probes, and growth exponents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from orchestrator.benchmarks.scaling.rows import kprobe_cache, scaling_benchmark, scaling_row
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.reference import reference_table
from orchestrator.report.kind import Group, processors
from orchestrator.report.sheet import NOTHING, Footnotes, Grid, Row, Sheet, figure, proof_lists
from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import Growth, growth

# The cells of a benchmark of many probes, by kernel, row and number of probes.


@dataclass(frozen=True)
class ScalingCells:
    """The cells of one machine and benchmark, by kernel, row and number of probes."""

    cells: Sequence[CellRecord]

    @classmethod
    def of(cls, group: Group) -> ScalingCells:
        """The cells of panels that are printed together."""
        return cls([cell for panel in group for cell in panel.cells])

    @property
    def kernels(self) -> list[str]:
        """The kernels: those without a cache first, of these the one with the fewest lists."""
        found = dict.fromkeys(cell.kernel for cell in self.cells)
        return sorted(found, key=lambda kernel: (self.cache(kernel), self.bits(kernel) or 0))

    @property
    def sizes(self) -> list[int]:
        """The numbers of probes, rising."""
        return sorted({size_of(cell) for cell in self.cells})

    def cell(self, kernel: str, row: str, size: int) -> CellRecord | None:
        """One cell; the baseline's row is BASELINE."""
        for one in self.cells:
            if one.kernel == kernel and row_of(one) == row and size_of(one) == size:
                return one
        return None

    def bits(self, kernel: str) -> int | None:
        """How many bits a kernel's hash of kprobes has, as it was built; None where no cell has it."""
        found = self._fact(kernel, "hash_bits")
        return found if isinstance(found, int) else None

    def cache(self, kernel: str) -> bool:
        """Whether the kernel has the cache."""
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

    def growth_by_steps(self, kernel: str, row: str, size: int) -> Growth | None:
        """Growth of the total cost with the number done, fitted to the cost of one in each step.

        The errors of steps are independent, those of running sums are not. A cost of one that grows like n to the
        power of p makes a total that grows like n to the power of p + 1.
        """
        cell = self.cell(kernel, row, size)
        if cell is None:
            return None
        # A step's mean cost belongs to the middle of the step, not to its end.
        found = growth([(number + 0.5, sample) for number, sample in enumerate(cell.samples)])
        if found is None:
            return None
        low, high = found.interval or (None, None)
        return Growth(1 + found.exponent, None if low is None or high is None else (1 + low, 1 + high))

    def largest(self, kernel: str, row: str) -> int | None:
        """The largest number of probes that there are figures of."""
        return next((size for size in reversed(self.sizes) if self.steps(kernel, row, size)), None)

    def growth_of_each(self, kernel: str, row: str) -> Growth | None:
        """Growth of the net cost of one with the number of probes."""
        return growth(
            [
                (float(size), cell.overhead)
                for size in self.sizes
                if (cell := self.cell(kernel, row, size)) and cell.overhead is not None
            ]
        )

    def _fact(self, kernel: str, name: str) -> object:
        return next(
            (cell.parameters[name] for cell in self.cells if cell.kernel == kernel and name in cell.parameters), None
        )


def row_of(cell: CellRecord) -> str:
    """The catalogue's name of a cell's row; BASELINE for the cell without a probe."""
    return cell.probe.partition(".")[2] or BASELINE


def place_of(cell: CellRecord) -> tuple[str, str, int]:
    """A cell's unique place in its table: kernel, row, number of probes."""
    return cell.kernel, row_of(cell), size_of(cell)


def size_of(cell: CellRecord) -> int:
    """A cell's number of probes."""
    size = cell.parameters.get("probes", 0)
    return int(size) if isinstance(size, int | float) else 0


# Growth exponents as rows of a table.


def growth_rows(label: str, found: Sequence[Growth | None]) -> list[Row]:
    """Return the exponents of columns, and below them their intervals; no rows where no column has one."""
    if not any(found):
        return []
    exponents = [f"{one.exponent:.3f}" if one else NOTHING for one in found]
    intervals = [one.interval if one else None for one in found]
    rows = [Row(f"  {label}", exponents)]
    if any(intervals):
        rows.append(Row("    its interval", [f"{one[0]:.3f}-{one[1]:.3f}" if one else "" for one in intervals]))
    return rows


# Thousands of kprobes in a kernel: a column for each kernel, which separates the hash's size from the cache.

_EVENTS = "kpcache-events"
_MAIL = "jump-optimization-2009/x86-32"
_PROVED = {"kpcache": "hit", _EVENTS: "enable"}
"""The row whose proof is printed: all rows of one size have the same proof."""
_HITS = ("hit-alone", "hit-first", "hit")
PER_SECOND = 1e9
"""Instructions in a second of the guest's time on the exact clock (machine.yaml: shift=0)."""
_MEMORY = {
    "a kprobe and its slot": "probe_bytes_plain",
    "the optimizer's part besides": "probe_bytes_extra",
    "a probe, by the free pages": "probe_bytes_taken",
    "the cache, for each CPU": "cache_bytes",
}


def kernels_sheet(group: Group) -> Sheet:
    """Return the panels of one machine as one table, a column for each kernel."""
    table, first = ScalingCells.of(group), group[0].first
    footnotes = Footnotes(table.cells, _name, lambda _: None)
    sizes = ", ".join(str(size) for size in table.sizes)
    return Sheet(
        title=f"Thousands of kprobes{', as events of tracefs' if first.benchmark == _EVENTS else ''}: {sizes}",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}; instructions, of all but hits with the timer's ticks; "
            "half of the registered probes are enabled"
            + ("; less what the shell takes itself" if first.benchmark == _EVENTS else ""),
        ],
        grid=Grid([_heading(table, kernel) for kernel in table.kernels], list(_blocks(table, footnotes))),
        sentences=list(_sentences(table)),
        footnotes=footnotes.all(),
        proofs=proof_lists([cell for cell in table.cells if row_of(cell) == _PROVED[first.benchmark]], _place),
    )


def _heading(table: ScalingCells, kernel: str) -> str:
    bits = table.bits(kernel)
    lists = f": {1 << bits} lists" if bits is not None and bits < 32 else ""
    return f"{kernel}{lists}{', cache' if table.cache(kernel) else ''}"


def _blocks(table: ScalingCells, footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    benchmark = scaling_benchmark(table.cells[0].benchmark)
    assert benchmark is not None
    measured = {row_of(cell) for cell in table.cells}
    for name, row in benchmark.rows.items():
        if row.curve and name in measured:
            yield [
                Row(f"{row.title.capitalize()} a probe", _blanks(table), style="bold"),
                *_curve(table, name, footnotes),
            ]
    if measured & set(_HITS):
        yield [Row("A hit", _blanks(table), style="bold"), *_hits(table, footnotes)]
    effects = list(_effects(table))
    if effects:
        yield [Row("Effects on a hit", _blanks(table), style="bold"), *effects]
    steps = list(_steps(table))
    if steps:
        yield [Row(f"Enable, of {table.sizes[-1]} registered", _blanks(table), style="bold"), *steps]
    memory = list(_memory(table))
    if memory:
        yield [Row("Memory, bytes", _blanks(table), style="bold"), *memory]


def _curve(table: ScalingCells, name: str, footnotes: Footnotes) -> Iterator[Row]:
    for size in table.sizes:
        yield Row(f"{size} registered", [_shown(table.cell(kernel, name, size), footnotes) for kernel in table.kernels])
    totals = [table.totals(kernel, name) for kernel in table.kernels]
    yield Row("  the most, guest seconds", [f"{t[-1][1] / PER_SECOND:.4g}" if t else NOTHING for t in totals])
    yield from growth_rows("exponent, by the number", [growth(points) for points in totals])
    largest = [(kernel, table.largest(kernel, name)) for kernel in table.kernels]
    within = [table.growth_by_steps(kernel, name, most) if most else None for kernel, most in largest]
    yield from growth_rows("exponent, by the steps", within)


def _hits(table: ScalingCells, footnotes: Footnotes) -> Iterator[Row]:
    def row(label: str, name: str, size: int) -> Row:
        return Row(label, [_shown(table.cell(kernel, name, size), footnotes) for kernel in table.kernels])

    alone = [
        next((cell for size in table.sizes if (cell := table.cell(kernel, "hit-alone", size))), None)
        for kernel in table.kernels
    ]
    yield Row("without other probes", [_shown(cell, footnotes) for cell in alone])
    for size in table.sizes:
        yield row(f"the first, among {size}", "hit-first", size)
        yield row(f"later ones, among {size}", "hit", size)
    yield from growth_rows("exponent, later ones", [table.growth_of_each(kernel, "hit") for kernel in table.kernels])


def _effects(table: ScalingCells) -> Iterator[Row]:
    """The effect of the hash's size, and separately of the cache with an equal size."""
    plain = [kernel for kernel in table.kernels if not table.cache(kernel)]
    for size in table.sizes:
        larger = [
            _difference(table, kernel, plain[0], size) if kernel in plain[1:] else NOTHING for kernel in table.kernels
        ]
        if set(larger) != {NOTHING}:
            yield Row(f"more lists, among {size}", larger)
        cached = []
        for kernel in table.kernels:
            same = next((other for other in plain if table.bits(other) == table.bits(kernel)), None)
            cached.append(_difference(table, kernel, same, size) if same and table.cache(kernel) else NOTHING)
        if set(cached) != {NOTHING}:
            yield Row(f"the cache, among {size}", cached)


def _steps(table: ScalingCells) -> Iterator[Row]:
    cells = [table.cell(kernel, "enable", table.sizes[-1]) for kernel in table.kernels]
    for number in range(max((len(cell.samples) for cell in cells if cell), default=0)):
        step = next(cell.parameters["step"] for cell in cells if cell and len(cell.samples) > number)
        assert isinstance(step, int | float)
        yield Row(
            f"{int(step) * number + 1} to {int(step) * (number + 1)}",
            [f"{cell.samples[number]:.1f}" if cell and cell.samples else NOTHING for cell in cells],
        )


def _memory(table: ScalingCells) -> Iterator[Row]:
    sizes = [table.largest(kernel, "register") for kernel in table.kernels]
    cells = [
        table.cell(kernel, "register", size) if size else None
        for kernel, size in zip(table.kernels, sizes, strict=True)
    ]
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


def _difference(table: ScalingCells, kernel: str, other: str, size: int) -> str:
    one, two = table.cell(kernel, "hit", size), table.cell(other, "hit", size)
    if one is None or two is None or one.overhead is None or two.overhead is None:
        return NOTHING
    difference = one.overhead - two.overhead
    return ("+" if difference > 0 else "") + figure(difference, one.unit)


def _shown(cell: CellRecord | None, footnotes: Footnotes) -> str:
    """The exact overhead of a hit; for other rows an average, printed to a tenth."""
    if cell is None:
        return NOTHING
    if cell.value is None:
        return f"{cell.status}{footnotes.marks(cell)}"
    if "step" in cell.parameters or cell.overhead is None:
        return f"{cell.value if cell.overhead is None else cell.overhead:.1f}"
    return figure(cell.overhead, cell.unit)


def _blanks(table: ScalingCells) -> list[str]:
    return [""] * len(table.kernels)


def _place(cell: CellRecord) -> str:
    return f"{size_of(cell)} on {cell.kernel}"


def _name(cell: CellRecord) -> str:
    row = scaling_row(cell.probe)
    title = "baseline" if cell.probe == BASELINE else row.title if row else cell.probe
    return f"{title}, {_place(cell)}"
