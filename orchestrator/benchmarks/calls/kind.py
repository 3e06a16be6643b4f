# SPDX-License-Identifier: GPL-2.0-only
"""Calls: the cost of a call with a probe on its path."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.artifacts.modules_disk import are_as_packed
from orchestrator.artifacts.qemu_plugins import qemu_plugin
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.benchmarks.calls.benchmarks import benchmarks, capability_grants
from orchestrator.benchmarks.calls.call_cells import CallCell, call_cells, profiled_cell
from orchestrator.benchmarks.calls.call_programs import MOST_TURNS, Calls
from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.calls.cell_work import GuestCache
from orchestrator.benchmarks.calls.executed import Executed, executed_by, executed_here
from orchestrator.benchmarks.calls.found_points import found_points, function_places, named_points
from orchestrator.benchmarks.calls.measurement import measure_call
from orchestrator.benchmarks.calls.never_hit import explained
from orchestrator.benchmarks.calls.preparation import (
    CallSetup,
    Places,
    calls_unsupported_reason,
    prepare_calls,
    probed_place,
    unsupported_reason,
    workload_of,
)
from orchestrator.benchmarks.calls.samples import exact_effect, overhead_by_purpose
from orchestrator.errors import EvidenceError, GuestError, LabError, NeverAtPlace, NotEntered, UsageError
from orchestrator.experiment.cell import machine_id
from orchestrator.experiment.fields import EXECUTED
from orchestrator.experiment.plan import Boot, machine_key
from orchestrator.experiment.table_kind import BenchmarkEntry, Listing
from orchestrator.guest.machine import CountingPlugin
from orchestrator.paths import cache_dir
from orchestrator.probes.place_answers import PlaceAnswers
from orchestrator.probes.point import Point
from orchestrator.results.contract import CellRecord
from orchestrator.results.printed_json import Printed
from orchestrator.run.benchmark_kind import ArtifactSource, BenchmarkKind, BootArtifacts, Prepared, Session
from orchestrator.run.cell_records import changed
from orchestrator.run.machines import machine_of
from orchestrator.run.ready_guest import ReadyGuest, measure_in_one_guest
from orchestrator.steps import step


class ListedCapability(Printed):
    """A capability of a kind of probe."""

    name: str
    """Its name in experiments."""
    ability: str
    """The capability in words."""
    granted: str
    """``yes`` or ``no``: whether the mechanism has it."""


class CallsKind(BenchmarkKind):
    """Calls, one probe a cell."""

    name = "calls"
    table = CallsTable
    paths = ("file", "libraries")

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {
            benchmark.name: BenchmarkEntry(benchmark.title, benchmark.entries) for benchmark in benchmarks().values()
        }

    def rows(self) -> Mapping[str, str]:
        """Probes that verify a capability: ``djprobe.pre-exec``."""
        return dict.fromkeys(capability_grants(), next(iter(benchmarks())))

    def lists(self) -> Mapping[str, Listing]:
        known = capability_grants().items()
        rows = [(name, capability.title, "yes" if grant.grants else "no") for name, (_, capability, grant) in known]
        return {"capabilities": Listing(ListedCapability, lambda: rows)}

    def cells(self, name: str | None, table: CallsTable) -> Iterator[CallCell]:
        return call_cells(name, table)

    def find(self, context: BuildContext, table: CallsTable, obtain: ArtifactSource) -> CallsTable:
        """The table with the points that ``executed`` and ``SYMBOL+*`` stand for, by kernel and machine.

        Points are left out where ``obtain`` does not make them, or a kernel does not support the calls. Raises
        HostError, GuestError, EvidenceError, and UsageError where calls enter no function, or a function has more than
        MOST_INSTRUCTIONS.
        """
        if not table.are_counted:
            return table
        points = {}
        for machine, name in product(table.machines, table.all_kernels):
            cell = profiled_cell(table, machine, name)
            kernel = ready_kernel(context, cell.spec)
            # A function that is too large, or missing, needs no guest.
            places = {point: function_places(kernel, point) for point in table.whole_functions}
            is_needed = table.points == EXECUTED or any(place is not None for place in places.values())
            executed, modules = None, cell.kernel_modules
            if is_needed and not (calls_unsupported_reason(kernel, cell) or missing_module_reason(kernel, modules)):
                machine_there = machine_of(context, kernel, Boot("calls", *machine_key(cell), (cell,)))
                artifacts = BootArtifacts(kernel, machine_there, {}, loaded_files(kernel, modules))
                workload = workload_of(context, kernel, cell)
                assert isinstance(workload, Calls)  # the table takes no program that is run whole
                executed = executed_by(context, obtain, artifacts, workload, cell.time_limit)
            if table.points != EXECUTED:
                points[machine_id(machine), name] = tuple(named_points(table.named_points, places, executed))
            elif executed is not None:
                points[machine_id(machine), name] = tuple(found_points(executed))
                if not points[machine_id(machine), name]:
                    raise UsageError(f"calls of {cell.benchmark} enter no function of {kernel.spec.name}")
        return table.with_found(points)

    def boot_key(self, cell: CallCell) -> Hashable:
        # QEMU follows whole programs, and several CPUs, in other ways.
        return cell.task.is_counted, cell.takes_turns

    def describe(self, cell: CallCell) -> str:
        if cell.task.is_counted:
            return f"{cell.repeats} runs, counted by system call"
        if cell.takes_turns:
            calls = min(cell.task.calls, MOST_TURNS)
            return f"{cell.repeats} x {calls} calls on each CPU in turns, entry {cell.task.entry}"
        return f"{cell.repeats} x {cell.task.calls} calls, entry {cell.task.entry}"

    def refused(self, kernel: Kernel, cells: Sequence[CallCell]) -> Mapping[str, str | None]:
        places: Places = {}
        cache = Cache(cache_dir())

        def reason(cell: CallCell) -> str | None:
            answers = PlaceAnswers(cache, kernel, cell.cpu, cell.kernel_modules)
            return unsupported_reason(kernel, cell, places, answers.known)

        return {cell.id: reason(cell) for cell in cells}

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[CallCell]
    ) -> Mapping[str, Prepared[CallSetup]]:
        return prepare_calls(context, kernel, cells)

    def measure(self, session: Session, cells: Sequence[CallCell]) -> Generator[CellRecord, None, None]:
        """Measure one cell after the other in one guest; cells that make the same calls share a baseline."""
        cache = GuestCache()

        def measured(ready: ReadyGuest, cell: CallCell) -> CellRecord:
            cache.note_switched(session.switched)
            cache.check_entered(cell, cell.task.kind)
            files = session.events_file(cell), session.profile_file(cell)
            try:
                return measure_call(ready, cell, session.setup(cell), *files, cache)
            except NeverAtPlace as error:
                _keep_answer(session.context.cache, ready, cell, error)
                raise
            except NotEntered as error:
                why = _explain(session, ready, cell, error, cache)
                cache.keep_not_entered(cell, why)
                raise why from None

        return measure_in_one_guest(session, cells, measured)

    def compare(self, cell: CallCell, record: CellRecord, other_cells: Sequence[CellRecord]) -> CellRecord:
        """The record with its overhead on the exact clock; on the wall clock each sample has its own baseline."""
        if record.overhead is not None:
            return record
        baseline = next(iter(other_cells), None)
        if baseline is None or baseline.value is None or record.value is None:
            lacking = "no overhead: the cell without a probe has no number to compare with"
            return changed(record, notes=(*record.notes, lacking))
        effect = exact_effect(record.value, baseline.value, baseline.samples)
        fields = {**vars(effect), "notes": (*record.notes, *effect.notes)}
        return changed(record, **fields, purposes=overhead_by_purpose(record.profile, baseline.profile))


def _keep_answer(cache: Cache, ready: ReadyGuest, cell: CallCell, error: NeverAtPlace) -> None:
    """Keep a guest's answer about a place, unless the module that has it was rebuilt since the guest loaded it."""
    kernel = ready.artifacts.kernel
    if are_as_packed(cache, ready.artifacts.machine.data, kernel):
        symbol, offset = probed_place(kernel, cell)
        PlaceAnswers(cache, kernel, cell.cpu, cell.kernel_modules).keep(cell.task.kind, symbol, offset, error.what)


def _explain(session: Session, ready: ReadyGuest, cell: CallCell, error: NotEntered, cache: GuestCache) -> NotEntered:
    """The error with its cause, as far as it can be known; unchanged where the calls cannot be counted exactly.

    All cells that make the same calls share one measurement of them. It needs a second guest, once for the kernel, the
    machine and the calls, where the cell's guest does not count. Raises GuestError where the cell's guest fails.
    """
    setup = session.setup(cell).setup
    assert isinstance(setup, CallSetup)
    workload = setup.workload
    if setup.in_program is not None:
        return error  # what the calls execute in the kernel explains nothing
    if not isinstance(workload, Calls) or ready.guest.machine.timing != "instructions":
        return error
    try:
        with step("find out what the calls execute"):
            executed = cache.once("executed", cell, lambda: _executed_by_cell(session, ready, cell, workload))
    except GuestError:
        raise
    except LabError as other_error:
        return NotEntered(
            error.what, hint=error.hint, detail=[*error.detail, f"what they execute is not known: {other_error.what}"]
        )
    return explained(error, Point(setup.symbol, setup.offset), ready.symbols, ready.artifacts.kernel.code, executed)


def _executed_by_cell(session: Session, ready: ReadyGuest, cell: CallCell, workload: Calls) -> Executed:
    if ready.guest.machine.counts_code:
        return executed_here(ready, workload, cell.time_limit)
    plugin = session.artifacts.plugin or qemu_plugin(session.context, "count")
    machine = replace(ready.guest.machine, counter=CountingPlugin(plugin))
    artifacts = replace(ready.artifacts, machine=machine, cells={})
    obtain = session.context.cache.obtain
    try:
        executed = executed_by(session.context, obtain, artifacts, workload, cell.time_limit, session.watch)
    except GuestError as error:  # of the other guest: the cell's own is sound
        raise EvidenceError(error.what) from None
    assert executed is not None
    return executed


KIND = CallsKind()
