# SPDX-License-Identifier: GPL-2.0-only
"""Calls: the cost of a system call, a function or a program with a probe in its path."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.compiler import counting_plugin
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.benchmarks import benchmarks, capability_list, capability_names
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.benchmarks.calls.executed import (
    Executed,
    MissedPoint,
    executed_by,
    executed_here,
    explained,
    with_points,
)
from orchestrator.benchmarks.calls.measurement import Known, exact_effect, measure_call, overhead_by_purpose
from orchestrator.benchmarks.calls.preparation import CallSetup, prepare_calls, refused_calls
from orchestrator.benchmarks.calls.table import CallCell, CallsTable, call_cells
from orchestrator.errors import EvidenceError, GuestError, LabError, NotEntered
from orchestrator.experiment.table import BenchmarkEntry, Listing
from orchestrator.guest.machine import CountingPlugin
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import BenchmarkKind, Obtain, Prepared, ReadyGuest, Session, attended, changed
from orchestrator.steps import step


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
        return f"{cell.repeats} x {cell.task.calls} calls, entry {cell.task.entry}"

    def refused(self, kernel: Kernel, cells: Sequence[CallCell]) -> Mapping[str, str]:
        return refused_calls(kernel, cells)

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
                why = _explain(session, ready, cell, error, known)
                known.keep_not_entered(cell, why)
                raise why from None

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


def _explain(session: Session, ready: ReadyGuest, cell: CallCell, error: NotEntered, known: Known) -> NotEntered:
    """The error with what can be known of its cause. It is as it was where the calls cannot be counted exactly.

    It costs one measurement of the calls for all cells that make them, and where the guest does not count, a second
    guest once for the kernel, the machine and the calls. Raises GuestError where the cell's guest fails.
    """
    setup = session.setup(cell).setup
    assert isinstance(setup, CallSetup)
    workload = setup.workload
    if setup.in_program is not None:
        return error  # what the calls execute of the kernel explains nothing
    if not isinstance(workload, Calls) or ready.guest.machine.timing != "instructions":
        return error
    try:
        with step("find out what the calls execute"):
            executed = known.once("executed", cell, lambda: _executed_by_cell(session, ready, cell, workload))
    except GuestError:
        raise
    except LabError as other:
        return NotEntered(
            error.what, hint=error.hint, detail=[*error.detail, f"what they execute is not known: {other.what}"]
        )
    kernel = ready.artifacts.kernel
    return explained(error, MissedPoint(setup.symbol, setup.offset, ready.symbols, kernel.code), executed)


def _executed_by_cell(session: Session, ready: ReadyGuest, cell: CallCell, workload: Calls) -> Executed:
    if ready.guest.machine.counter is not None:
        return executed_here(ready, workload, cell.time_limit)
    plugin = session.artifacts.plugin or counting_plugin(session.context)
    machine = replace(ready.guest.machine, counter=CountingPlugin(plugin))
    artifacts = replace(ready.artifacts, machine=machine, cells={})
    obtain = session.context.cache.obtain
    try:
        found = executed_by(session.context, obtain, artifacts, workload, cell.time_limit, session.watch)
    except GuestError as error:  # of the other guest: the cell's own is sound
        raise EvidenceError(error.what) from None
    assert found is not None
    return found


def _capabilities() -> Sequence[Sequence[object]]:
    capabilities = capability_list().capabilities
    return [
        (name, capabilities[capability].title, "yes" if capabilities[capability].probes[probe].grants else "no")
        for name, (probe, capability) in capability_names().items()
    ]


KIND = CallsKind()
