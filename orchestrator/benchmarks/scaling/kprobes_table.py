# SPDX-License-Identifier: GPL-2.0-only
"""The table of thousands of kprobes, which separates the effect of the hash's size from that of the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.benchmarks.scaling import scaling_parameters
from orchestrator.benchmarks.scaling.rows import EVENTS_BENCHMARK, kprobe_cache
from orchestrator.benchmarks.scaling.scaling_cells import (
    PER_SECOND,
    KernelColumns,
    ScalingCells,
    cell_name,
    cell_place,
    cost_or_status,
    growth_rows,
    row_of,
    size_of,
    unless_empty,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.published_tables import reference_table
from orchestrator.report.columns import Columns, columns_of
from orchestrator.report.figures import NOTHING, signed_figure
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Row
from orchestrator.report.proofs import proof_lists
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import processors
from orchestrator.results import parameters
from orchestrator.results.statistics import growth

_HITS = ("hit-alone", "hit-first", "hit")


def kprobes_sheet(table: ScalingCells) -> Sheet:
    """The table of thousands of kprobes."""
    first = table.cells[0]
    footnotes, of_events = Footnotes(table.cells, cell_name, lambda _: None), first.benchmark == EVENTS_BENCHMARK
    columns = Columns(columns_of(table.kernels, partial(_heading, table)))
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
        grid=columns.grid(*_Blocks(table, columns, footnotes).all()),
        sentences=list(_sentences(table)),
        footnotes=footnotes.all(),
        proofs=proof_lists(proved, cell_place),
    )


def _heading(table: ScalingCells, kernel: str) -> str:
    bits = table.bits(kernel)
    lists = f": {1 << bits} lists" if bits is not None and bits < 32 else ""
    return f"{kernel}{lists}{', cache' if table.cache(kernel) else ''}"


@dataclass(frozen=True)
class _Blocks:
    """The table's blocks of rows, in ``columns`` of kernels."""

    table: ScalingCells
    columns: KernelColumns
    footnotes: Footnotes

    def all(self) -> Iterator[Sequence[Row]]:
        """Each block that has rows, below its title."""
        measured = {row_of(cell) for cell in self.table.cells}
        blocks = {
            f"{row.title.capitalize()} a probe": self._curve(name)
            for name, row in kprobe_cache().benchmarks[self.table.cells[0].benchmark].rows.items()
            if row.curve and name in measured
        }
        if measured & set(_HITS):
            blocks["A hit"] = self._hits()
        blocks["Effects on a hit"] = self._effects()
        blocks[f"Enable, of {self.table.sizes[-1]} registered"] = self._steps()
        blocks["Memory, bytes"] = self._memory()
        for title, rows in blocks.items():
            block = [self.columns.title(title), *rows]
            if len(block) > 1:
                yield block

    def _cost(self, label: str, name: str, size: int) -> Row:
        return self.columns.row(
            label, lambda kernel: cost_or_status(self.table.cell(kernel, name, size), self.footnotes)
        )

    def _curve(self, name: str) -> Iterator[Row]:
        def most(kernel: str) -> str:
            totals = self.table.totals(kernel, name)
            return f"{totals[-1][1] / PER_SECOND:.4g}" if totals else NOTHING

        yield from (self._cost(f"{size} registered", name, size) for size in self.table.sizes)
        yield self.columns.row("  the most, guest seconds", most)
        yield from growth_rows(
            self.columns, "exponent, by the number", lambda kernel: growth(self.table.totals(kernel, name))
        )
        yield from growth_rows(
            self.columns, "exponent, by the steps", lambda kernel: self.table.growth_by_steps(kernel, name)
        )

    def _hits(self) -> Iterator[Row]:
        def alone(kernel: str) -> str:
            cells = (self.table.cell(kernel, "hit-alone", size) for size in self.table.sizes)
            return cost_or_status(next(filter(None, cells), None), self.footnotes)

        yield self.columns.row("without other probes", alone)
        for size in self.table.sizes:
            yield self._cost(f"the first, among {size}", "hit-first", size)
            yield self._cost(f"later ones, among {size}", "hit", size)
        yield from growth_rows(
            self.columns, "exponent, later ones", lambda kernel: growth(self.table.overheads(kernel, "hit"))
        )

    def _effects(self) -> Iterator[Row]:
        table = self.table
        plain = [kernel for kernel in table.kernels if not table.cache(kernel)]
        fewest = dict.fromkeys(plain[1:], next(iter(plain), None))
        same = {
            kernel: next((candidate for candidate in plain if table.bits(candidate) == table.bits(kernel)), None)
            for kernel in table.kernels
            if table.cache(kernel)
        }
        for size in table.sizes:
            yield from unless_empty(self._difference(f"more lists, among {size}", fewest, size))
            yield from unless_empty(self._difference(f"the cache, among {size}", same, size))

    def _difference(self, label: str, references: Mapping[str, str | None], size: int) -> Row:
        """What a hit costs more on a kernel than on its reference."""

        def difference(kernel: str) -> str:
            cell, reference = self.table.cell(kernel, "hit", size), references.get(kernel)
            base = self.table.cell(reference, "hit", size) if reference else None
            if cell is None or base is None or cell.overhead is None or base.overhead is None:
                return NOTHING
            return signed_figure(cell.overhead - base.overhead, cell.unit)

        return self.columns.row(label, difference)

    def _steps(self) -> Iterator[Row]:
        cells = self.table.across("enable", self.table.sizes[-1])
        for number in range(max((len(cell.samples) for cell in cells), default=0)):
            step = next(scaling_parameters.STEP.of(cell) or 0 for cell in cells if len(cell.samples) > number)
            yield self._step(f"{step * number + 1} to {step * (number + 1)}", number)

    def _step(self, label: str, number: int) -> Row:
        def sample(kernel: str) -> str:
            cell = self.table.cell(kernel, "enable", self.table.sizes[-1])
            return f"{cell.samples[number]:.1f}" if cell and cell.samples else NOTHING

        return self.columns.row(label, sample)

    def _memory(self) -> Iterator[Row]:
        yield from (
            row
            for label, name in (
                ("a kprobe and its slot", parameters.PROBE_BYTES_PLAIN),
                ("the optimizer's part besides", parameters.PROBE_BYTES_EXTRA),
                ("a probe, by the free pages", scaling_parameters.PROBE_BYTES_TAKEN),
                ("the cache, for each CPU", scaling_parameters.CACHE_BYTES),
            )
            for row in unless_empty(self._bytes(label, name))
        )

    def _bytes(self, label: str, name: str) -> Row:
        def bytes_of(kernel: str) -> str:
            cell = self.table.largest(kernel, "register")
            return str(cell.parameters.get(name, NOTHING)) if cell else NOTHING

        return self.columns.row(label, bytes_of)


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
    left_out = {
        cell.kernel: scaling_parameters.LEFT_OUT.of(cell) for cell in table.cells if size_of(cell) == table.sizes[-1]
    }
    numbers = ", ".join(f"{number} on {kernel}" for kernel, number in left_out.items() if number is not None)
    if numbers:
        yield f"Registered, but not enabled, because enabling itself hits them: {numbers}."
