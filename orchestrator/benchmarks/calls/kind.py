# SPDX-License-Identifier: GPL-2.0-only
"""Calls: the cost of a system call, a function or a program with a probe in its path."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.benchmarks import benchmarks, capability_list, capability_names
from orchestrator.benchmarks.calls.executed import Known, explain, with_points
from orchestrator.benchmarks.calls.measurement import measure_call
from orchestrator.benchmarks.calls.preparation import CallSetup, KernelPlaces, prepare_calls
from orchestrator.benchmarks.calls.table import CallCell, CallsTable, call_cells
from orchestrator.benchmarks.calls.workload import exact_effect, overhead_by_purpose
from orchestrator.errors import NotEntered
from orchestrator.experiment.table import BenchmarkEntry, Listing
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import BenchmarkKind, Obtain, Prepared, ReadyGuest, Session, attended, changed


class CallsKind(BenchmarkKind):
    """Calls, one probe a cell."""

    name = "calls"
    table = CallsTable
    paths = ("file", "libraries")

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {one.name: BenchmarkEntry(one.title, one.entries) for one in benchmarks().values()}

    def rows(self) -> Mapping[str, str]:
        """Probes that verify one capability: ``djprobe.pre-exec``."""
        return dict.fromkeys(capability_names(), next(iter(benchmarks())))

    def lists(self) -> Mapping[str, Listing]:
        return {"capabilities": Listing(("name", "ability", "granted"), _capabilities)}

    def cells(self, name: str | None, table: CallsTable) -> Iterator[CallCell]:
        return call_cells(name, table)

    def find(self, context: BuildContext, table: CallsTable, obtain: Obtain) -> CallsTable:
        return with_points(context, table, obtain)

    def describe(self, cell: CallCell) -> str:
        if cell.task.refusal is not None:
            return f"not probed: {cell.task.refusal}"
        return f"{cell.repeats} x {cell.task.calls} calls, entry {cell.task.entry}"

    def refused_points(self, kernel: Kernel, cells: Sequence[CallCell]) -> Mapping[str, str]:
        """What the kernel's image says against the cells' kinds of probe at the points that they name.

        Of a found point that is not probed ``describe`` has the reason.
        """
        places = KernelPlaces(kernel)
        named = [cell for cell in cells if cell.task.refusal is None]
        return {cell.id: reason for cell in named if (reason := places.refusal(cell)) is not None}

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[CallCell]
    ) -> Mapping[str, Prepared[CallSetup]]:
        return prepare_calls(context, kernel, cells)

    def measure(self, session: Session, cells: Sequence[CallCell]) -> Generator[CellRecord, None, None]:
        """Measure cell after cell in one guest; cells that make the same calls share a baseline."""
        known = Known()

        def measured(ready: ReadyGuest, cell: CallCell) -> CellRecord:
            known.note_switched(session.switched)
            known.check_entered(cell, cell.task.kind)
            files = session.events_file(cell), session.profile_file(cell)
            try:
                return measure_call(ready, cell, session.setup(cell), *files, known)
            except NotEntered as error:
                explained = explain(session, ready, cell, error, known)
                known.keep_not_entered(cell, explained)
                raise explained from None

        return attended(session, cells, measured)

    def compare(self, cell: CallCell, record: CellRecord, others: Sequence[CellRecord]) -> CellRecord:
        """The record with its overhead on the exact clock; on the others each sample has its own baseline."""
        if record.overhead is not None:
            return record
        baseline = next(iter(others), None)
        if baseline is None or baseline.value is None or record.value is None:
            lacking = "no overhead: the cell without a probe has no number to compare with"
            return changed(record, notes=(*record.notes, lacking))
        effect = exact_effect(record.value, baseline.value, baseline.samples)
        purposes = overhead_by_purpose(record.profile, baseline.profile)
        return changed(
            record,
            overhead=effect.overhead,
            interval=effect.interval,
            verdict=effect.verdict,
            notes=(*record.notes, *effect.notes),
            purposes=purposes,
        )


def _capabilities() -> Sequence[Sequence[object]]:
    capabilities = capability_list().capabilities
    return [
        (name, capabilities[capability].title, "yes" if capabilities[capability].probes[probe].grants else "no")
        for name, (probe, capability) in capability_names().items()
    ]


KIND = CallsKind()
