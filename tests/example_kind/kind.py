# SPDX-License-Identifier: GPL-2.0-only
"""Readings: what it costs to read a file of the guest's kernel, beside an empty one."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from example_kind.benchmark import BENCHMARK, EMPTY
from example_kind.measurement import measure_reading
from example_kind.table import ReadingCell, ReadingTable, ReadingTask
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.probes import BASELINE
from orchestrator.experiment.table_kind import BenchmarkEntry
from orchestrator.results.contract import PER_RUN, CellRecord
from orchestrator.results.statistics import median, median_interval
from orchestrator.run.benchmark_kind import BenchmarkKind, Prepared, Ready, Session
from orchestrator.run.cell_records import changed
from orchestrator.run.ready_guest import ReadyGuest, measure_in_one_guest
from orchestrator.run.user_modules import smp_note

_NEEDED = {"/proc/kallsyms": "CONFIG_KALLSYMS", "/proc/modules": "CONFIG_MODULES"}
"""Files that a kernel has with an option only; whether any other file is there, the guest shows."""


class ReadingKind(BenchmarkKind):
    """Readings, one file a cell."""

    name = BENCHMARK
    table = ReadingTable

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {BENCHMARK: BenchmarkEntry("reads of files in /proc and /sys")}

    def cells(self, name: str | None, table: ReadingTable) -> Generator[ReadingCell, None, None]:
        """Each machine's and kernel's files, the empty one first."""
        for place, _ in table.places(name):
            empty = place.id(EMPTY.removeprefix("/"))
            for file in (EMPTY, *table.benchmark.files):
                yield table.cell(
                    place,
                    (file.removeprefix("/"),),
                    probe=BASELINE,
                    metric=PER_RUN,
                    repeats=table.benchmark.repeats,
                    task=ReadingTask(file),
                    parameters={"file": file},
                    compared_with=() if file == EMPTY else (empty,),
                )

    def describe(self, cell: ReadingCell) -> str:
        return f"{cell.repeats} x cat {cell.task.file}"

    def refused(self, kernel: Kernel, cells: Sequence[ReadingCell]) -> Mapping[str, str | None]:
        """A file that the kernel's configuration rules out is refused."""
        needed = {cell.id: _NEEDED.get(cell.task.file) for cell in cells}
        return {
            id_: f"this kernel was built without {option}"
            for id_, option in needed.items()
            if option is not None and kernel.config.get(option) != "y"
        }

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[ReadingCell]
    ) -> Mapping[str, Prepared[None]]:
        """Nothing is built."""
        return {cell.id: Ready(None, notes=smp_note(kernel, cell.smp)) for cell in cells}

    def measure(self, session: Session, cells: Sequence[ReadingCell]) -> Generator[CellRecord, None, None]:
        """Measure file after file in one guest."""

        def measured(ready: ReadyGuest, cell: ReadingCell) -> CellRecord:
            return measure_reading(ready, cell, session.setup(cell).notes)

        return measure_in_one_guest(session, cells, measured)

    def compare(self, cell: ReadingCell, record: CellRecord, other_cells: Sequence[CellRecord]) -> CellRecord:
        """The record with what a run costs more than one that reads the empty file.

        The interval spans the differences that the two medians' 95 % intervals leave possible. Runs differ by what a
        timer's tick and the guest's caches add: where that hides the effect, there is no verdict.
        """
        if not cell.compared_with:
            return changed(record, overhead=0.0, interval=(0.0, 0.0))
        empty = next(iter(other_cells), None)
        if empty is None:
            return record
        low, high = median_interval(record.samples)
        empty_low, empty_high = median_interval(empty.samples)
        interval = low - empty_high, high - empty_low
        hidden = interval[0] <= 0 <= interval[1]
        note = f"no verdict: the difference lies between {interval[0]:.0f} and {interval[1]:.0f} {record.unit}"
        return changed(
            record,
            overhead=median(record.samples) - median(empty.samples),
            interval=interval,
            verdict="none" if hidden else None,
            notes=(*record.notes, note) if hidden else record.notes,
        )


KIND = ReadingKind()
