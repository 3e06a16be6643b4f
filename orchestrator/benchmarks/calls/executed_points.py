# SPDX-License-Identifier: GPL-2.0-only
"""The points of a table with ``points: executed`` or ``[SYMBOL+*]``: found before its cells are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.benchmarks.calls.cells import profiled_cell
from orchestrator.benchmarks.calls.executed import Executed, executed_by
from orchestrator.benchmarks.calls.preparation import workload_of
from orchestrator.benchmarks.calls.probe_setup import calls_unsupported_reason
from orchestrator.benchmarks.calls.table import CallsTable, FoundPoint
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.benchmarks.calls.workload import ExactWorkload
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import UsageError
from orchestrator.experiment.cell import machine_id, whole_function
from orchestrator.experiment.file.fields import EXECUTED
from orchestrator.experiment.plan import Boot, machine_key
from orchestrator.probes.placement import FunctionPlaces, ProbePlace, places_of
from orchestrator.program import PROGRAM
from orchestrator.run.artifacts import BootArtifacts
from orchestrator.run.kind import Obtain
from orchestrator.run.machines import machine_of

MOST_POINTS = 200
"""Functions that are probed, on one kernel and machine; a system call enters some twenty."""
MOST_INSTRUCTIONS = 500
"""Instructions of a function that a point stands for; vfs_read has some two hundred."""


def with_points(context: BuildContext, table: CallsTable, obtain: Obtain) -> CallsTable:
    """The table with the functions that its calls enter, or each instruction of a function, by kernel and machine.

    What ``obtain`` has not, and what a kernel cannot run, is left out. Raises HostError, GuestError, EvidenceError, and
    UsageError where calls enter no function, and for a function of more than MOST_INSTRUCTIONS.
    """
    if not table.are_counted:
        return table
    found = {}
    for machine, name in product(table.machines, table.all_kernels):
        cell = profiled_cell(table, machine, name)
        kernel = ready_kernel(context, kernel_spec(name))
        # What is too large, or not there, needs no guest.
        places = {point: _places(kernel, point) for point in table.whole_functions}
        is_needed = table.points == EXECUTED or any(place is not None for place in places.values())
        executed = _executed(context, kernel, cell, obtain) if is_needed else None
        if table.points != EXECUTED:
            found[machine_id(machine), name] = tuple(_named_points(table.points or (), places, executed))
        elif executed is not None:
            found[machine_id(machine), name] = tuple(found_points(executed))
            if not found[machine_id(machine), name]:
                raise UsageError(f"calls of {cell.benchmark} enter no function of {kernel.spec.name}")
    return table.with_found(found)


def _named_points(
    points: Sequence[str], places: Mapping[str, FunctionPlaces | None], executed: Executed | None
) -> Iterator[FoundPoint]:
    """The points of a list, each function with ``+*`` as its instructions where the kernel has it."""
    for point in points:
        function = places.get(point)
        if function is None:
            yield FoundPoint(point)
        else:
            yield from instruction_points(point, function, executed)


def instruction_points(among: str, function: FunctionPlaces, executed: Executed | None) -> Iterator[FoundPoint]:
    """Each instruction of a function as a point; without a count of what calls execute, their hits are not known."""
    entered = None if executed is None else executed.at(function.address)
    for place in function.places:
        name = f"{function.symbol}+{place.offset:#x}"
        if executed is None:
            yield FoundPoint(name, among=among, place=place)
            continue
        count = 0 if entered is None else entered.counts.get(place.offset, 0)
        refusal = _count_refusal(place, count, executed.calls)
        hits = 1 if refusal is not None else count // executed.calls
        yield FoundPoint(name, hits, refusal, among=among, place=place)


def _count_refusal(place: ProbePlace, count: int, calls: int) -> str | None:
    if count == 0:
        return "these calls do not execute it"
    if place.is_repeated:
        return "it repeats itself, and a probe is hit once: how often calls come to it was not counted"
    if count % calls:
        return f"{calls} calls execute it {count} times: not each as often"
    return None


def _places(kernel: Kernel, point: str) -> FunctionPlaces | None:
    """The instructions that a point stands for; None where the kernel has no such function, which is an error later."""
    symbol, code = whole_function(point) or "", kernel.code
    if code is None:
        raise UsageError(
            f"the code of kernel {kernel.spec.name} is not at hand, so it is not known what {point} stands for",
            hint="a build tree of your own needs its vmlinux and System.map, or a bzImage packed by gzip, xz or zstd",
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
    """The functions as points, the one with the most instructions first.

    A name that several have is there once, for the one that can be probed if there is any.
    """
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
        yield FoundPoint(one.name, one.entered // executed.calls if refusal is None else 1, refusal)


def _executed(context: BuildContext, kernel: Kernel, cell: CallCell, obtain: Obtain) -> Executed | None:
    if (calls_unsupported_reason(kernel, cell) or missing_module_reason(kernel, cell.kernel_modules)) is not None:
        return None
    boot = Boot("calls", *machine_key(cell), (cell,))
    artifacts = BootArtifacts(kernel, machine_of(context, kernel, boot), {}, loaded_files(kernel, cell.kernel_modules))
    workload = workload_of(context, kernel, cell)
    assert isinstance(workload, ExactWorkload)  # the table takes no program that is run whole
    return executed_by(context, obtain, artifacts, workload, cell.time_limit)
