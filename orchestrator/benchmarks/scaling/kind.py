# SPDX-License-Identifier: GPL-2.0-only
"""Scaling: the cost to register, enable and hit thousands of probes, as in the kprobe cache patch of 2014."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from itertools import product

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import render
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.benchmarks.scaling.measurement import measure_rows
from orchestrator.benchmarks.scaling.rows import kprobe_cache, scaling_benchmark, scaling_row
from orchestrator.benchmarks.scaling.table import ScalingTable
from orchestrator.benchmarks.scaling.task import ScalingCell, ScalingTask
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import BuildError
from orchestrator.experiment.cell import Cell, cell_id, machine_id, rows_on
from orchestrator.experiment.kind import BenchmarkEntry, Listing
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import Session
from orchestrator.run.kind import BenchmarkKind
from orchestrator.run.preparation import Prepared, Ready, compiler_note, failed, smp_note, unsupported

_NEEDED = ("CONFIG_KPROBES", "CONFIG_DEBUG_FS", "CONFIG_KALLSYMS")


class ScalingKind(BenchmarkKind):
    """Many probes; one run of the work measures all rows of one size."""

    name = "scaling"
    table = ScalingTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        """The benchmarks by name."""
        return {name: BenchmarkEntry(one.title) for name, one in kprobe_cache().benchmarks.items()}

    def rows(self) -> Mapping[str, str]:
        """The benchmarks' rows."""
        return {f"{name}.{row}": name for name, one in kprobe_cache().benchmarks.items() for row in one.rows}

    def lists(self) -> Mapping[str, Listing]:
        """The benchmarks' rows."""
        return {"kpcache": Listing(("name", "what", "each"), _rows)}

    def cells(self, name: str | None, table: ScalingTable) -> Generator[ScalingCell, None, None]:
        """Each machine's and kernel's rows by size, the baseline first."""
        benchmark = table.benchmark
        known = scaling_benchmark(benchmark.name)
        assert known is not None
        for machine, (kernel, rows) in product(
            table.machines, rows_on(table.kernels, table.probes, table.kernel_for).items()
        ):
            place = (machine_id(machine), kernel_spec(kernel).name)
            for size, row in product(benchmark.sizes or (), rows):
                yield Cell(
                    id=cell_id(name, *place, row, "noop", str(size)),
                    table=name,
                    cpu=machine.cpu,
                    smp=machine.smp,
                    memory_mib=machine.memory_mib,
                    kernel=kernel,
                    row=row,
                    handler="noop",
                    benchmark=benchmark.name,
                    metric=f"cost per {(scaling_row(row) or known.baseline).each}",
                    repeats=1,
                    clock=table.clock,
                    image=None,
                    channel=table.channel,
                    time_limit=table.time_limit,
                    task=ScalingTask(row, size, benchmark.seed),
                    parameters={"probes": size, "seed": benchmark.seed},
                    profile=table.profile or (),
                    compared_with=() if row == BASELINE else (cell_id(name, *place, BASELINE, "noop", str(size)),),
                )

    def boot_key(self, cell: ScalingCell) -> Hashable:
        """Each size has its own boot: the work leaves memory in another state, which would change the next."""
        return cell.table, cell.benchmark, cell.task.size

    def describe(self, cell: ScalingCell) -> str:
        """The number of probes and the seed."""
        return f"{cell.task.size} probes, seed {cell.task.seed}"

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[ScalingCell]
    ) -> Mapping[str, Prepared[Module]]:
        """The benchmark's module, for all cells of a boot alike."""
        prepared = self._prepared(context, kernel, cells[0])
        return {cell.id: prepared for cell in cells}

    def _prepared(self, context: BuildContext, kernel: Kernel, cell: ScalingCell) -> Prepared[Module]:
        known = scaling_benchmark(cell.benchmark)
        assert known is not None
        lacking = next((option for option in _NEEDED if kernel.config.get(option) != "y"), None)
        if lacking is not None:
            return unsupported(f"this kernel was built without {lacking}")
        (module,) = build_modules(context, kernel, [render(known.template, {})])
        if isinstance(module, BuildError):
            return failed(module)
        return Ready(module, (module,), (*smp_note(kernel, cell.smp), *compiler_note(kernel, module)))

    def measure(self, session: Session, cells: Sequence[ScalingCell]) -> Generator[CellRecord, None, None]:
        """Do the work once, and read every row from its output."""
        yield from measure_rows(session, cells)


def _rows() -> Sequence[Sequence[object]]:
    return [
        (f"{name}.{row_name}", row.title, row.each)
        for name, benchmark in kprobe_cache().benchmarks.items()
        for row_name, row in benchmark.rows.items()
    ]


KIND = ScalingKind()
