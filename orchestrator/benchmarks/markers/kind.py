# SPDX-License-Identifier: GPL-2.0-only
"""Markers: the cost of one round of a loop with a marker in it, as in the document of 2006."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ValidationInfo

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module, build_modules, render
from orchestrator.benchmarks.markers.measurement import MarkerCell, MarkerTask, measure_marker
from orchestrator.benchmarks.markers.rows import BENCHMARK, PREFIX, marker_benchmarks, marker_row
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import BuildError
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.table import DEFAULT_REPEATS, BenchmarkChoice, BenchmarkEntry, Listing, RowsTable, place_id
from orchestrator.results.contract import PER_LOOP, CellRecord
from orchestrator.run.boot import (
    BenchmarkKind,
    Prepared,
    Ready,
    ReadyGuest,
    Session,
    attended,
    changed,
    compiler_note,
    failed,
    smp_note,
    unsupported,
)


class MarkersBenchmark(BenchmarkChoice):
    """Samples of loops."""

    repeats: Annotated[int, whole(1, 100)] | None = None
    """Samples of each loop."""


def _with_repeats(benchmark: MarkersBenchmark, info: ValidationInfo) -> MarkersBenchmark:
    clock = info.data.get("clock")  # None where the clock itself is invalid
    if benchmark.repeats is not None or clock is None:
        return benchmark
    return benchmark.model_copy(update={"repeats": DEFAULT_REPEATS[clock]})


class MarkersTable(RowsTable):
    """Machines, kernels and rows of the markers document, of which every combination is a cell."""

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ("symbols", "classes")

    benchmark: Annotated[MarkersBenchmark, AfterValidator(_with_repeats)]
    profile: Entries[Annotated[ProfilePart, one_of(lambda: MarkersTable.PROFILE_PARTS)]] | None = None
    """What each cell says of where its instructions went."""

    def row_prefix(self) -> str:
        return PREFIX


class MarkersKind(BenchmarkKind):
    """Loops with markers, one row a cell."""

    name = BENCHMARK
    table = MarkersTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {BENCHMARK: BenchmarkEntry(marker_benchmarks().listed_as)}

    def rows(self) -> Mapping[str, str]:
        return {f"{PREFIX}{row}": BENCHMARK for row in marker_benchmarks().rows}

    def lists(self) -> Mapping[str, Listing]:
        return {"markers": Listing(("name", "loop", "rounds"), _rows)}

    def cells(self, name: str | None, table: MarkersTable) -> Generator[MarkerCell, None, None]:
        """Each machine's and kernel's rows, the empty loop first."""
        for machine, kernel, rows in table.places():
            baseline = place_id(name, machine, kernel, BASELINE, "noop")
            for row in rows:
                yield table.cell(
                    *(name, machine, kernel, row, "noop"),
                    row=row,
                    metric=PER_LOOP,
                    repeats=table.benchmark.repeats or 1,
                    task=MarkerTask(row),
                    parameters=table.guest_parameters,
                    compared_with=() if row == BASELINE else (baseline,),
                )

    def describe(self, cell: MarkerCell) -> str:
        row = marker_row(cell.task.row)
        return f"{cell.repeats} x {0 if row is None else row.rounds} rounds"

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[MarkerCell]
    ) -> Mapping[str, Prepared[Module]]:
        """The module with all the loops, for each row that the kernel can have."""
        prepared: dict[str, Prepared[Module]] = {}
        module: Module | BuildError | None = None
        for cell in cells:
            why = unsupported_reason(kernel, cell)
            if why is not None:
                prepared[cell.id] = unsupported(why)
                continue
            if module is None:
                (module,) = build_modules(context, kernel, [render("markers", {})])
            if isinstance(module, BuildError):
                prepared[cell.id] = failed(module)
            else:
                notes = (*smp_note(kernel, cell.smp), *compiler_note(kernel, module))
                prepared[cell.id] = Ready(module, (module,), notes)
        return prepared

    def measure(self, session: Session, cells: Sequence[MarkerCell]) -> Generator[CellRecord, None, None]:
        def measured(ready: ReadyGuest, cell: MarkerCell) -> CellRecord:
            prepared = session.setup(cell)
            return measure_marker(ready, cell, prepared.setup, prepared.notes, session.profile_file(cell))

        return attended(session, cells, measured)

    def compare(self, cell: MarkerCell, record: CellRecord, others: Sequence[CellRecord]) -> CellRecord:
        """The record with its overhead: the cost of a round less that of the empty loop."""
        baseline = next((other.value for other in others), None)
        if cell.task.row == BASELINE or baseline is None or record.value is None:
            return record
        overhead = record.value - baseline
        return changed(record, overhead=overhead, interval=(overhead, overhead))


def unsupported_reason(kernel: Kernel, cell: MarkerCell) -> str | None:
    """Why this kernel's configuration does not support the row; None where it does."""
    row = marker_row(cell.task.row)
    if row is not None and row.on_stack and kernel.spec.arch == "x86_64":
        return "asmlinkage means nothing on x86_64: the probe's arguments are in registers, not on the stack"
    if row is not None and row.guarded and kernel.config.get("CONFIG_PREEMPT_COUNT") != "y":
        other = "lab-x86_64-smp-preempt" if kernel.spec.arch == "x86_64" else "lab-i386-smp-preempt"
        return f"this kernel has no preemption to disable; take a preemptible one, such as {other}"
    return None


def _rows() -> Sequence[Sequence[object]]:
    return [(f"{PREFIX}{name}", row.title, row.rounds) for name, row in marker_benchmarks().rows.items()]


KIND = MarkersKind()
