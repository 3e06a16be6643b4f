# SPDX-License-Identifier: GPL-2.0-only
"""Calls: the cost of a call with a probe on its path; what calls execute, to find points and to explain missed ones."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated

from pydantic import Field

from orchestrator.artifacts.cache import BuildContext, Cache
from orchestrator.artifacts.compiler import qemu_plugin
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import CODE_HINT, Kernel, ready_kernel
from orchestrator.artifacts.machine_code import direct_calls, entry_places
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.benchmarks.calls.benchmarks import benchmarks, capability_grants
from orchestrator.benchmarks.calls.call_programs import MOST_TURNS, Calls
from orchestrator.benchmarks.calls.cell_work import GuestCache
from orchestrator.benchmarks.calls.measurement import measure_call
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
from orchestrator.benchmarks.calls.table import CallCell, CallsTable, FoundPoint, call_cells, profiled_cell
from orchestrator.errors import EvidenceError, GuestError, LabError, NeverAtPlace, NotEntered, UsageError
from orchestrator.experiment.cell import machine_id
from orchestrator.experiment.fields import EXECUTED
from orchestrator.experiment.plan import Boot, machine_key
from orchestrator.experiment.table import BenchmarkEntry, Listing
from orchestrator.files import ScratchFolder
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import CountingPlugin
from orchestrator.paths import cache_dir
from orchestrator.plain_text import counted, shown
from orchestrator.probes.place_answers import PlaceAnswers
from orchestrator.probes.placement import FunctionPlaces, RefusedPlaces, places_of
from orchestrator.probes.point import Point
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.profiled import Counter as InstructionCounter
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord, Phrase, Record, valid_result
from orchestrator.results.stored_profile import CellProfile, FunctionName, SymbolProfile
from orchestrator.run.boot import (
    ArtifactSource,
    BenchmarkKind,
    BootArtifacts,
    Prepared,
    ReadyGuest,
    Session,
    changed,
    measure_in_one_guest,
    ready_guest,
)
from orchestrator.run.guests import unwatched
from orchestrator.run.machines import machine_of
from orchestrator.steps import step

_FILE = "executed.json"


class ExecutedFunction(Record):
    """A function of the kernel, or of one of its modules, and what calls execute in it.

    ``address`` is its start, relative to the text of its ``module`` if it has one. All calls together reach the place
    of a probe at its entry ``entered`` times, and execute ``instructions`` in it; ``counts`` has the executions of each
    instruction by its offset. ``refusal`` is why it cannot be probed, None where it can.
    """

    name: FunctionName
    address: Annotated[int, Field(ge=0, lt=2**64)]
    entered: Annotated[int, Field(ge=0, lt=2**63)]
    instructions: int
    counts: dict[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
    refusal: Phrase | None
    module: Phrase | None = None


class Executed(Record):
    """What ``calls`` calls execute in the kernel, by function, the one with the most instructions first."""

    calls: Annotated[int, Field(ge=1)]
    functions: tuple[ExecutedFunction, ...]

    def at(self, address: int) -> ExecutedFunction | None:
        """The kernel's own function at an address; None where the calls do not execute it."""
        return next((one for one in self.functions if one.module is None and one.address == address), None)


def executed_here(ready: ReadyGuest, workload: Calls, time_limit: float) -> Executed:
    """What calls execute in a guest that counts instructions. Raises EvidenceError where a proof fails."""
    ticks = int(ready.artifacts.kernel.config["CONFIG_HZ"])
    measured = workload.measure_exact(ready.guest, repeats=2, ticks_per_second=ticks, time_limit=time_limit)
    counter = InstructionCounter(ready.guest, ready.symbols)
    mark = counter.mark()
    marked = workload.measure_marked(ready.guest, measured, time_limit=time_limit)
    profile = counter.profile(mark, marked.timed, cell="executed", calls=marked.calls, program=workload.program)
    refused = RefusedPlaces.of(ready.guest, ready.symbols)
    loaded = ready.artifacts.kernel_modules
    with valid_result():
        return Executed(calls=profile.calls, functions=tuple(_functions(profile, ready.symbols, refused, loaded)))


def executed_by(
    context: BuildContext,
    obtain: ArtifactSource,
    artifacts: BootArtifacts,
    workload: Calls,
    time_limit: float,
    watch: Callable[[Guest], None] = unwatched,
) -> Executed | None:
    """The same in a guest of its own, whose machine counts; the result is cached by kernel, machine and calls.

    None where ``obtain`` does not make it. ``watch`` gets the guest before it runs. Raises GuestError, EvidenceError.
    """
    machine = artifacts.machine
    hardware = {"cpu": repr(machine.cpu), "memory": machine.memory_mib}
    inputs = {**artifacts.keys, **hardware, "calls": repr(workload), "contents": "counts, modules"}

    def count(folder: Path) -> None:
        context.say(f"counting what the calls execute on {artifacts.kernel.spec.name}")
        with (
            ScratchFolder("orchestrator-executed-") as directory,
            ready_guest(context, artifacts, directory, "guest", watch=watch) as ready,
        ):
            workload.prepare(ready.guest)
            found = executed_here(ready, workload, time_limit)
        (folder / _FILE).write_text(found.model_dump_json())

    artifact = obtain("executed-functions", inputs, f"functions that calls execute on {machine.cpu.name}", count)
    return None if artifact is None else Executed.stored_in(artifact.path / _FILE)


def _functions(
    profile: CellProfile, symbols: Symbols, refused: RefusedPlaces, loaded: Container[str]
) -> Iterator[ExecutedFunction]:
    for one in profile.symbols:
        if one.place in ("kernel", "module"):
            executed = {at.offset: at.executed for at in one.instructions if at.executed > 0}
            entered = entries(one)
            uneven = None if entered else "these calls do not enter it at its beginning"
            if entered % profile.calls:
                uneven = f"{profile.calls} calls enter it {entered} times: not equally often"
            yield ExecutedFunction(
                name=one.name,
                address=one.address,
                entered=entered,
                instructions=one.executed,
                counts=executed,
                refusal=_place_refusal(one, symbols, refused, loaded) or uneven,
                module=one.module,
            )


def entries(function: SymbolProfile) -> int:
    """How often a function was entered: executions of its first own instruction."""
    code = b""
    for at in function.instructions:
        if at.offset == len(code):
            code += bytes.fromhex(at.code)
    first = max(entry_places(code))
    return sum(at.executed for at in function.instructions if at.offset == first and at.executed > 0)


def _place_refusal(
    symbol: SymbolProfile, symbols: Symbols, refused: RefusedPlaces, loaded: Container[str]
) -> str | None:
    if symbol.module is not None and symbol.module not in loaded:
        return f"it is a function of module {symbol.module}, which is not among the experiment's kernel_modules"
    reason = refused.reason(symbol.address)
    if reason is not None:
        return reason
    named = symbols.functions(symbol.name)
    if named > 1:
        return f"the kernel has {named} functions of this name"
    if symbol.module is not None and named == 1 and symbols.module(symbols.address(symbol.name)) is None:
        return f"it is a function of module {symbol.module}, and its name stands for one of the kernel itself"
    return None


MOST_POINTS = 200
"""Most functions that are probed on one kernel and machine; a system call enters some twenty."""
MOST_INSTRUCTIONS = 500
"""Most instructions that a point ``SYMBOL+*`` stands for; vfs_read has some two hundred."""


def _named_points(
    points: Sequence[Point], places: Mapping[Point, FunctionPlaces | None], executed: Executed | None
) -> Iterator[FoundPoint]:
    for point in points:
        function = places.get(point)
        if function is None:
            yield FoundPoint(point)
        else:
            yield from instruction_points(str(point), function, executed)


def instruction_points(found_by: str, function: FunctionPlaces, executed: Executed | None) -> Iterator[FoundPoint]:
    """A point for each instruction of a function; without a count of executions, their hits are not known."""
    entered = None if executed is None else executed.at(function.address)
    for place in function.places:
        point = Point(function.symbol, place.offset, found_by=found_by)
        if executed is None:
            yield FoundPoint(point, place=place)
            continue
        count, refusal = 0 if entered is None else entered.counts.get(place.offset, 0), None
        if count == 0:
            refusal = "these calls do not execute it"
        elif place.is_repeated:
            refusal = "it repeats itself, and a probe is hit once: how often calls reach it was not counted"
        elif count % executed.calls:
            refusal = f"{executed.calls} calls execute it {count} times: not equally often"
        hits = 1 if refusal is not None else count // executed.calls
        yield FoundPoint(point, hits, refusal, place)


def _places(kernel: Kernel, point: Point) -> FunctionPlaces | None:
    """The instructions that a point stands for; None where the kernel lacks the function: a later check reports it."""
    symbol, code = point.symbol, kernel.code
    if code is None:
        raise UsageError(
            f"{point} needs the code of kernel {kernel.spec.name}, which is not available",
            hint=CODE_HINT,
        )
    found = places_of(code, kernel.config, symbol)
    if found is not None and len(found.places) > MOST_INSTRUCTIONS:
        raise UsageError(
            f"{point} stands for {len(found.places)} instructions on {kernel.spec.name}, and {MOST_INSTRUCTIONS} are "
            "the most",
            hint=f"name places: {PROGRAM} disasm {kernel.spec.argument} {symbol} lists them",
        )
    return found


def found_points(executed: Executed) -> Iterator[FoundPoint]:
    """A point for each function, in the order of ``executed``; a name that several functions have appears once."""
    probed, names = 0, set()
    possible = {one.name for one in executed.functions if one.refusal is None}
    for one in executed.functions:
        if one.name in names or (one.refusal is not None and one.name in possible):
            continue
        names.add(one.name)
        refusal = one.refusal
        if refusal is None:
            probed += 1
            if probed > MOST_POINTS:
                refusal = f"left out: {MOST_POINTS} functions with more instructions are probed"
        hits = one.entered // executed.calls if refusal is None else 1
        yield FoundPoint(Point(one.name, found_by=EXECUTED), hits, refusal)


# Why calls never hit a probe: what these calls execute, and what in the kernel's code calls the function.


def explained(
    error: NotEntered, point: Point, symbols: Symbols, code: KernelCode | None, executed: Executed
) -> NotEntered:
    """The error with details: whether the calls execute the function, what calls it, which functions they enter.

    ``code`` is None where it is unknown.
    """
    names = [one.name for one in executed.functions if one.refusal is None]
    alike = difflib.get_close_matches(point.symbol, names, n=2, cutoff=0.6)
    suggested = [one for one in dict.fromkeys([*alike, *names]) if one != point.symbol][:5]
    hint = f"these calls enter: {', '.join(suggested)}" if suggested else ""
    detail = [*error.detail, *_why(point, symbols, code, executed)]
    return NotEntered(error.what, where=error.where, detail=detail, hint=hint)


def _why(point: Point, symbols: Symbols, code: KernelCode | None, executed: Executed) -> Iterator[str]:
    address, offset = symbols.address(point.symbol), point.offset or 0
    function, module = executed.at(address), symbols.module(address)
    if module is not None:
        named = (module, point.symbol)
        function = next((one for one in executed.functions if (one.module, one.name) == named), None)
    if function is None:
        yield f"these calls execute no instruction of {point.symbol}"
        if code is not None and module is None:  # the kernel's image has no call of a module's functions
            yield from _ways(address, symbols, code, executed)
    elif offset in function.counts:
        yield f"without the probe, these calls execute {point.symbol}+{offset:#x}"
    else:
        yield (
            f"these calls execute {counted(len(function.counts), 'instruction')} of {point.symbol}, at "
            f"{_listed([f'+{one:#x}' for one in sorted(function.counts)])}, but not the one at "
            f"+{offset:#x}: they take another path through it"
        )


def _ways(function: int, symbols: Symbols, code: KernelCode, executed: Executed) -> Iterator[str]:
    found = {symbols.function_at(address) for address in direct_calls(code, function)}
    callers = {one[:2] for one in found if one is not None and one[0] != function}
    taken = sorted(name for address, name in callers if executed.at(address) is not None)
    others = sorted(name for address, name in callers if executed.at(address) is None)
    calling = f"{_listed(taken or others)} {'calls' if len(taken or others) == 1 else 'call'} it"
    if taken:
        yield f"{calling}; the measured calls execute that, on another path"
    elif others:
        yield f"{calling}; the measured calls execute none of that"
    else:
        yield "nothing calls it directly: it is called through a pointer, or inlined wherever it is used"
    if others or not callers:
        yield "where the compiler has inlined it, its instructions belong to the function around it"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(shown(names, 4, "{} more"))


class CallsKind(BenchmarkKind):
    """Calls, one probe a cell."""

    name = "calls"
    table = CallsTable
    paths = ("file", "libraries")

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {one.name: BenchmarkEntry(one.title, one.entries) for one in benchmarks().values()}

    def rows(self) -> Mapping[str, str]:
        """Probes that verify a capability: ``djprobe.pre-exec``."""
        return dict.fromkeys(capability_grants(), next(iter(benchmarks())))

    def lists(self) -> Mapping[str, Listing]:
        known = capability_grants().items()
        rows = [(name, one.title, "yes" if grant.grants else "no") for name, (_, one, grant) in known]
        return {"capabilities": Listing(("name", "ability", "granted"), lambda: rows)}

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
        found = {}
        for machine, name in product(table.machines, table.all_kernels):
            cell = profiled_cell(table, machine, name)
            kernel = ready_kernel(context, cell.spec)
            # A function that is too large, or missing, needs no guest.
            places = {point: _places(kernel, point) for point in table.whole_functions}
            is_needed = table.points == EXECUTED or any(place is not None for place in places.values())
            executed, modules = None, cell.kernel_modules
            if is_needed and not (calls_unsupported_reason(kernel, cell) or missing_module_reason(kernel, modules)):
                machine_there = machine_of(context, kernel, Boot("calls", *machine_key(cell), (cell,)))
                artifacts = BootArtifacts(kernel, machine_there, {}, loaded_files(kernel, modules))
                workload = workload_of(context, kernel, cell)
                assert isinstance(workload, Calls)  # the table takes no program that is run whole
                executed = executed_by(context, obtain, artifacts, workload, cell.time_limit)
            if table.points != EXECUTED:
                found[machine_id(machine), name] = tuple(_named_points(table.named_points, places, executed))
            elif executed is not None:
                found[machine_id(machine), name] = tuple(found_points(executed))
                if not found[machine_id(machine), name]:
                    raise UsageError(f"calls of {cell.benchmark} enter no function of {kernel.spec.name}")
        return table.with_found(found)

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
        answers = {cpu: PlaceAnswers(Cache(cache_dir()), kernel, cpu).known for cpu in {cell.cpu for cell in cells}}
        return {cell.id: unsupported_reason(kernel, cell, places, answers[cell.cpu]) for cell in cells}

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
                symbol, offset = probed_place(ready.artifacts.kernel, cell)
                answers = PlaceAnswers(session.context.cache, ready.artifacts.kernel, cell.cpu)
                answers.keep(cell.task.kind, symbol, offset, error.what)
                raise
            except NotEntered as error:
                why = _explain(session, ready, cell, error, cache)
                cache.keep_not_entered(cell, why)
                raise why from None

        return measure_in_one_guest(session, cells, measured)

    def compare(self, cell: CallCell, record: CellRecord, others: Sequence[CellRecord]) -> CellRecord:
        """The record with its overhead on the exact clock; on the wall clock each sample has its own baseline."""
        if record.overhead is not None:
            return record
        baseline = next(iter(others), None)
        if baseline is None or baseline.value is None or record.value is None:
            lacking = "no overhead: the cell without a probe has no number to compare with"
            return changed(record, notes=(*record.notes, lacking))
        effect = exact_effect(record.value, baseline.value, baseline.samples)
        fields = {**vars(effect), "notes": (*record.notes, *effect.notes)}
        return changed(record, **fields, purposes=overhead_by_purpose(record.profile, baseline.profile))


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
    except LabError as other:
        return NotEntered(
            error.what, hint=error.hint, detail=[*error.detail, f"what they execute is not known: {other.what}"]
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
        found = executed_by(session.context, obtain, artifacts, workload, cell.time_limit, session.watch)
    except GuestError as error:  # of the other guest: the cell's own is sound
        raise EvidenceError(error.what) from None
    assert found is not None
    return found


KIND = CallsKind()
