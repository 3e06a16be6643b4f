# SPDX-License-Identifier: GPL-2.0-only
"""Points that the lab finds for a table: functions that a call executes, and places within a function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.artifacts.ready_kernels import CODE_HINT, Kernel
from orchestrator.benchmarks.calls.calls_table import FoundPoint
from orchestrator.benchmarks.calls.executed import Executed
from orchestrator.errors import UsageError
from orchestrator.experiment.fields import EXECUTED
from orchestrator.probes.placement import FunctionPlaces, places_of
from orchestrator.probes.point import Point
from orchestrator.program import PROGRAM

MOST_POINTS = 200
"""Most functions that are probed on one kernel and machine; a system call enters some twenty."""


MOST_INSTRUCTIONS = 500
"""Most instructions that a point ``SYMBOL+*`` stands for; vfs_read has some two hundred."""


def named_points(
    points: Sequence[Point], places: Mapping[Point, FunctionPlaces | None], executed: Executed | None
) -> Iterator[FoundPoint]:
    """The points that a table names; ``SYMBOL+*`` stands for each instruction of the function."""
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


def function_places(kernel: Kernel, point: Point) -> FunctionPlaces | None:
    """The instructions that a point stands for; None where the kernel lacks the function: a later check reports it."""
    symbol, code = point.symbol, kernel.code
    if code is None:
        raise UsageError(
            f"{point} needs the code of kernel {kernel.spec.name}, which is not available",
            hint=CODE_HINT,
        )
    places = places_of(code, kernel.config, symbol)
    if places is not None and len(places.places) > MOST_INSTRUCTIONS:
        raise UsageError(
            f"{point} stands for {len(places.places)} instructions on {kernel.spec.name}, and {MOST_INSTRUCTIONS} are "
            "the most",
            hint=f"name places: {PROGRAM} disasm {kernel.spec.argument} {symbol} lists them",
        )
    return places


def found_points(executed: Executed) -> Iterator[FoundPoint]:
    """A point for each function, in the order of ``executed``; a name that several functions have appears once."""
    probed, names = 0, set()
    possible = {executed_function.name for executed_function in executed.functions if executed_function.refusal is None}
    for function in executed.functions:
        if function.name in names or (function.refusal is not None and function.name in possible):
            continue
        names.add(function.name)
        refusal = function.refusal
        if refusal is None:
            probed += 1
            if probed > MOST_POINTS:
                refusal = f"left out: {MOST_POINTS} functions with more instructions are probed"
        hits = function.entered // executed.calls if refusal is None else 1
        yield FoundPoint(Point(function.name, found_by=EXECUTED), hits, refusal)
