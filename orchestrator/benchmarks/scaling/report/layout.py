# SPDX-License-Identifier: GPL-2.0-only
"""Thousands of kprobes in a kernel: a column for each kernel, so that the hash's size and the cache stand apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.benchmarks.scaling.report.growth_rows import Mass, growth_rows, row_of, size_of
from orchestrator.benchmarks.scaling.rows import kprobe_cache, mass_benchmark, mass_row
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.reference import reference_table
from orchestrator.report.evidence import proof_lists
from orchestrator.report.figures import NOTHING, figure
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panels import Panel
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import processors
from orchestrator.results.contract import CellRecord
from orchestrator.results.growth import growth

_EVENTS = "kpcache-events"
_MAIL = "jump-optimization-2009/x86-32"
_PROVED = {"kpcache": "hit", _EVENTS: "enable"}
"""The row whose proof is shown: one piece of work has one proof."""
_HITS = ("hit-alone", "hit-first", "hit")
PER_SECOND = 1e9
"""Instructions in a second of the guest's time on the exact clock (machine.yaml: shift=0)."""
_MEMORY = {
    "a kprobe and its slot": "probe_bytes_plain",
    "the optimizer's part besides": "probe_bytes_extra",
    "a probe, by the free pages": "probe_bytes_taken",
    "the cache, for each CPU": "cache_bytes",
}


def mass_sheet(group: Sequence[Panel]) -> Sheet:
    """Return the panels of one machine as one table."""
    mass, first = Mass.of(group), group[0].first
    footnotes = Footnotes(mass.cells, _name, lambda _: None)
    sizes = ", ".join(str(size) for size in mass.sizes)
    return Sheet(
        title=f"Thousands of kprobes{', as events of tracefs' if first.benchmark == _EVENTS else ''}: {sizes}",
        facts=[
            cpu(first.cpu).title,
            f"{first.cpu}, {processors(first)}; instructions, of all but hits with the timer's ticks; "
            "half of the registered probes are enabled"
            + ("; less what the shell takes itself" if first.benchmark == _EVENTS else ""),
        ],
        grid=Grid([_heading(mass, kernel) for kernel in mass.kernels], list(_blocks(mass, footnotes))),
        sentences=list(_sentences(mass)),
        footnotes=footnotes.all(),
        proofs=proof_lists([cell for cell in mass.cells if row_of(cell) == _PROVED[first.benchmark]], _place),
    )


def _heading(mass: Mass, kernel: str) -> str:
    bits = mass.bits(kernel)
    lists = f": {1 << bits} lists" if bits is not None and bits < 32 else ""
    return f"{kernel}{lists}{', cache' if mass.cache(kernel) else ''}"


def _blocks(mass: Mass, footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    benchmark = mass_benchmark(mass.cells[0].benchmark)
    assert benchmark is not None
    measured = {row_of(cell) for cell in mass.cells}
    for name, row in benchmark.rows.items():
        if row.curve and name in measured:
            yield [
                Row(f"{row.title.capitalize()} a probe", _blanks(mass), style="bold"),
                *_curve(mass, name, footnotes),
            ]
    if measured & set(_HITS):
        yield [Row("A hit", _blanks(mass), style="bold"), *_hits(mass, footnotes)]
    effects = list(_effects(mass))
    if effects:
        yield [Row("Effects on a hit", _blanks(mass), style="bold"), *effects]
    steps = list(_steps(mass))
    if steps:
        yield [Row(f"Enable, of {mass.sizes[-1]} registered", _blanks(mass), style="bold"), *steps]
    memory = list(_memory(mass))
    if memory:
        yield [Row("Memory, bytes", _blanks(mass), style="bold"), *memory]


def _curve(mass: Mass, name: str, footnotes: Footnotes) -> Iterator[Row]:
    for size in mass.sizes:
        yield Row(f"{size} registered", [_shown(mass.cell(kernel, name, size), footnotes) for kernel in mass.kernels])
    totals = [mass.totals(kernel, name) for kernel in mass.kernels]
    yield Row("  the most, guest seconds", [f"{t[-1][1] / PER_SECOND:.4g}" if t else NOTHING for t in totals])
    yield from growth_rows("exponent, by the number", [growth(points) for points in totals])
    largest = [(kernel, mass.largest(kernel, name)) for kernel in mass.kernels]
    within = [mass.growth_by_steps(kernel, name, most) if most else None for kernel, most in largest]
    yield from growth_rows("exponent, by the steps", within)


def _hits(mass: Mass, footnotes: Footnotes) -> Iterator[Row]:
    def row(label: str, name: str, size: int) -> Row:
        return Row(label, [_shown(mass.cell(kernel, name, size), footnotes) for kernel in mass.kernels])

    alone = [
        next((cell for size in mass.sizes if (cell := mass.cell(kernel, "hit-alone", size))), None)
        for kernel in mass.kernels
    ]
    yield Row("without other probes", [_shown(cell, footnotes) for cell in alone])
    for size in mass.sizes:
        yield row(f"the first, among {size}", "hit-first", size)
        yield row(f"later ones, among {size}", "hit", size)
    yield from growth_rows("exponent, later ones", [mass.growth_of_each(kernel, "hit") for kernel in mass.kernels])


def _effects(mass: Mass) -> Iterator[Row]:
    """What the hash's size does, and what the cache does besides: two comparisons, never one."""
    plain = [kernel for kernel in mass.kernels if not mass.cache(kernel)]
    for size in mass.sizes:
        larger = [
            _difference(mass, kernel, plain[0], size) if kernel in plain[1:] else NOTHING for kernel in mass.kernels
        ]
        if set(larger) != {NOTHING}:
            yield Row(f"more lists, among {size}", larger)
        cached = []
        for kernel in mass.kernels:
            same = next((other for other in plain if mass.bits(other) == mass.bits(kernel)), None)
            cached.append(_difference(mass, kernel, same, size) if same and mass.cache(kernel) else NOTHING)
        if set(cached) != {NOTHING}:
            yield Row(f"the cache, among {size}", cached)


def _steps(mass: Mass) -> Iterator[Row]:
    cells = [mass.cell(kernel, "enable", mass.sizes[-1]) for kernel in mass.kernels]
    for number in range(max((len(cell.samples) for cell in cells if cell), default=0)):
        step = next(cell.parameters["step"] for cell in cells if cell and len(cell.samples) > number)
        assert isinstance(step, int | float)
        yield Row(
            f"{int(step) * number + 1} to {int(step) * (number + 1)}",
            [f"{cell.samples[number]:.1f}" if cell and cell.samples else NOTHING for cell in cells],
        )


def _memory(mass: Mass) -> Iterator[Row]:
    sizes = [mass.largest(kernel, "register") for kernel in mass.kernels]
    cells = [
        mass.cell(kernel, "register", size) if size else None for kernel, size in zip(mass.kernels, sizes, strict=True)
    ]
    for label, name in _MEMORY.items():
        texts = [str(cell.parameters.get(name, NOTHING)) if cell else NOTHING for cell in cells]
        if set(texts) != {NOTHING}:
            yield Row(label, texts)


def _sentences(mass: Mass) -> Iterator[str]:
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
    if any(row_of(cell) in _HITS for cell in mass.cells):
        yield "A hit's figures are what it costs more than the call; what is hit is spread evenly among the others."
    if any("probe_bytes_extra" in cell.parameters for cell in mass.cells):
        extra = reference_table(_MAIL).extra_bytes["kprobe+optimized"]
        yield f"Published of the optimizer's part, in the mail of 2009: {extra} bytes more on x86-32, 3 times as much."
    left_out = {cell.kernel: cell.parameters.get("left_out") for cell in mass.cells if size_of(cell) == mass.sizes[-1]}
    told = ", ".join(f"{number} on {kernel}" for kernel, number in left_out.items() if number is not None)
    if told:
        yield f"Registered, but not enabled, because enabling itself hits them: {told}."


def _difference(mass: Mass, kernel: str, other: str, size: int) -> str:
    one, two = mass.cell(kernel, "hit", size), mass.cell(other, "hit", size)
    if one is None or two is None or one.overhead is None or two.overhead is None:
        return NOTHING
    difference = one.overhead - two.overhead
    return ("+" if difference > 0 else "") + figure(difference, one.unit)


def _shown(cell: CellRecord | None, footnotes: Footnotes) -> str:
    """What a hit adds to its call, exactly; of all else, the average to a tenth."""
    if cell is None:
        return NOTHING
    if cell.value is None:
        return f"{cell.status}{footnotes.marks(cell)}"
    if "step" in cell.parameters or cell.overhead is None:
        return f"{cell.value if cell.overhead is None else cell.overhead:.1f}"
    return figure(cell.overhead, cell.unit)


def _blanks(mass: Mass) -> list[str]:
    return [""] * len(mass.kernels)


def _place(cell: CellRecord) -> str:
    return f"{size_of(cell)} on {cell.kernel}"


def _name(cell: CellRecord) -> str:
    row = mass_row(cell.probe)
    title = "baseline" if cell.probe == BASELINE else row.title if row else cell.probe
    return f"{title}, {_place(cell)}"
