# SPDX-License-Identifier: GPL-2.0-only
"""Markers: the cost of one round of a loop with a marker in it, as in the document of 2006."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ValidationInfo

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import render
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.benchmarks.markers.measurement import MarkerCell, MarkerTask, measure_marker
from orchestrator.benchmarks.markers.rows import PREFIX, marker_benchmarks, marker_row
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE, probe_name
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import BuildError
from orchestrator.experiment.cell import Cell, cell_id, machine_id, rows_on
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.table import DEFAULT_REPEATS, BenchmarkChoice, BenchmarkEntry, Listing, RowsTable
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

# A table of marked loops.


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
        """The prefix of the rows' names."""
        return PREFIX


_NAME = "markers"


class MarkersKind(BenchmarkKind):
    """Loops with markers, one row a cell."""

    name = "markers"
    table = MarkersTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        """The one benchmark."""
        return {_NAME: BenchmarkEntry(marker_benchmarks().listed_as)}

    def rows(self) -> Mapping[str, str]:
        """The document's rows."""
        return {f"{PREFIX}{row}": _NAME for row in marker_benchmarks().rows}

    def lists(self) -> Mapping[str, Listing]:
        """The document's rows."""
        return {"markers": Listing(("name", "loop", "rounds"), _rows)}

    def cells(self, name: str | None, table: MarkersTable) -> Generator[MarkerCell, None, None]:
        """Each machine's and kernel's rows, the empty loop first."""
        for machine, (kernel, rows) in product(
            table.machines, rows_on(table.kernels, table.probes, table.kernel_for).items()
        ):
            kernel_name, machine_name = kernel_spec(kernel).name, machine_id(machine)
            baseline = cell_id(name, machine_name, kernel_name, BASELINE, "noop")
            for row in rows:
                parameters: dict[str, str | int] = {}
                if table.image is not None:
                    parameters["image"] = probe_name(Path(table.image))
                if table.channel != "framed":
                    parameters["channel"] = table.channel
                yield Cell(
                    id=cell_id(name, machine_name, kernel_name, row, "noop"),
                    table=name,
                    cpu=machine.cpu,
                    smp=machine.smp,
                    memory_mib=machine.memory_mib,
                    kernel=kernel,
                    row=row,
                    handler="noop",
                    benchmark=_NAME,
                    metric=PER_LOOP,
                    repeats=table.benchmark.repeats or 1,
                    clock=table.clock,
                    image=table.image,
                    channel=table.channel,
                    time_limit=table.time_limit,
                    task=MarkerTask(row),
                    parameters=parameters,
                    profile=table.profile or (),
                    compared_with=() if row == BASELINE else (baseline,),
                )

    def describe(self, cell: MarkerCell) -> str:
        """The samples and rounds."""
        row = marker_row(cell.task.row)
        return f"{cell.repeats} x {0 if row is None else row.rounds} rounds"

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[MarkerCell]
    ) -> Mapping[str, Prepared[Module]]:
        """The module with all the loops, for each row that the kernel can have."""
        reasons = {cell.id: unsupported_reason(kernel, cell) for cell in cells}
        prepared: dict[str, Prepared[Module]] = {
            id_: unsupported(why) for id_, why in reasons.items() if why is not None
        }
        possible = [cell for cell in cells if cell.id not in prepared]
        if not possible:
            return prepared
        (module,) = build_modules(context, kernel, [render("markers", {})])
        for cell in possible:
            if isinstance(module, BuildError):
                prepared[cell.id] = failed(module)
            else:
                notes = (*smp_note(kernel, cell.smp), *compiler_note(kernel, module))
                prepared[cell.id] = Ready(module, (module,), notes)
        return prepared

    def measure(self, session: Session, cells: Sequence[MarkerCell]) -> Generator[CellRecord, None, None]:
        """Measure row after row in one guest."""

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
