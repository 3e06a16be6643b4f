# SPDX-License-Identifier: GPL-2.0-only
"""The table of thousands of kprobes, which separates the effect of the hash's size from that of the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.benchmarks.scaling.rows import EVENTS_BENCHMARK, kprobe_cache
from orchestrator.benchmarks.scaling.scaling_cells import (
    PER_SECOND,
    ScalingCells,
    cell_name,
    cell_place,
    cost_row,
    growth_rows,
    row_of,
    size_of,
    unless_empty,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.reference import reference_table
from orchestrator.report.kind import processors
from orchestrator.report.sheet import (
    NOTHING,
    Footnotes,
    Grid,
    Row,
    Sheet,
    proof_lists,
    signed_figure,
)
from orchestrator.results import parameters
from orchestrator.results.statistics import growth

_HITS = ("hit-alone", "hit-first", "hit")


def kprobes_sheet(table: ScalingCells) -> Sheet:
    """The table of thousands of kprobes."""
    first = table.cells[0]
    footnotes, of_events = Footnotes(table.cells, cell_name, lambda _: None), first.benchmark == EVENTS_BENCHMARK
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
        proofs=proof_lists(proved, cell_place),
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
        yield cost_row(f"{size} registered", table.across(name, size), footnotes)
    totals = [table.totals(kernel, name) for kernel in table.kernels]
    yield Row("  the most, guest seconds", [f"{t[-1][1] / PER_SECOND:.4g}" if t else NOTHING for t in totals])
    yield from growth_rows("exponent, by the number", [growth(points) for points in totals])
    yield from growth_rows("exponent, by the steps", [table.growth_by_steps(kernel, name) for kernel in table.kernels])


def _hits(table: ScalingCells, footnotes: Footnotes) -> Iterator[Row]:
    by_kernel = zip(*(table.across("hit-alone", size) for size in table.sizes), strict=True)
    yield cost_row("without other probes", [next(filter(None, cells), None) for cells in by_kernel], footnotes)
    for size in table.sizes:
        for label, name in (("the first", "hit-first"), ("later ones", "hit")):
            yield cost_row(f"{label}, among {size}", table.across(name, size), footnotes)
    later = [growth(table.overheads(kernel, "hit")) for kernel in table.kernels]
    yield from growth_rows("exponent, later ones", later)


def _effects(table: ScalingCells) -> Iterator[Row]:
    plain = [kernel for kernel in table.kernels if not table.cache(kernel)]
    same = {
        kernel: next((candidate for candidate in plain if table.bits(candidate) == table.bits(kernel)), None)
        for kernel in table.kernels
        if table.cache(kernel)
    }

    def difference(kernel: str, reference: str | None, size: int) -> str:
        cell, two = table.cell(kernel, "hit", size), table.cell(reference, "hit", size) if reference else None
        if cell is None or two is None or cell.overhead is None or two.overhead is None:
            return NOTHING
        return signed_figure(cell.overhead - two.overhead, cell.unit)

    for size in table.sizes:
        for label, references in (
            ("more lists", dict.fromkeys(plain[1:], next(iter(plain), None))),
            ("the cache", same),
        ):
            texts = [difference(kernel, references.get(kernel), size) for kernel in table.kernels]
            yield from unless_empty(f"{label}, among {size}", texts)


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
        yield from unless_empty(label, [str(cell.parameters.get(name, NOTHING)) if cell else NOTHING for cell in cells])


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
