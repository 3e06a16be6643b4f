# SPDX-License-Identifier: GPL-2.0-only
"""Why calls never hit a probe: what these calls execute, and what in the kernel's code calls the function."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.machine_code import direct_calls
from orchestrator.benchmarks.calls.executed import Executed
from orchestrator.errors import NotEntered
from orchestrator.plain_text import counted, shown
from orchestrator.probes.point import Point
from orchestrator.probes.symbols import Symbols


def explained(
    error: NotEntered, point: Point, symbols: Symbols, code: KernelCode | None, executed: Executed
) -> NotEntered:
    """The error with details: whether the calls execute the function, what calls it, which functions they enter.

    ``code`` is None where it is unknown.
    """
    names = [function.name for function in executed.functions if function.refusal is None]
    alike = difflib.get_close_matches(point.symbol, names, n=2, cutoff=0.6)
    suggested = [name for name in dict.fromkeys([*alike, *names]) if name != point.symbol][:5]
    hint = f"these calls enter: {', '.join(suggested)}" if suggested else ""
    detail = [*error.detail, *_why(point, symbols, code, executed)]
    return NotEntered(error.what, where=error.where, detail=detail, hint=hint)


def _why(point: Point, symbols: Symbols, code: KernelCode | None, executed: Executed) -> Iterator[str]:
    address, offset = symbols.address(point.symbol), point.offset or 0
    function, module = executed.at(address), symbols.module(address)
    if module is not None:
        named = (module, point.symbol)
        function = next(
            (
                executed_function
                for executed_function in executed.functions
                if (executed_function.module, executed_function.name) == named
            ),
            None,
        )
    if function is None:
        yield f"these calls execute no instruction of {point.symbol}"
        if code is not None and module is None:  # the kernel's image has no call of a module's functions
            yield from _ways(address, symbols, code, executed)
    elif offset in function.counts:
        yield f"without the probe, these calls execute {point.symbol}+{offset:#x}"
    else:
        yield (
            f"these calls execute {counted(len(function.counts), 'instruction')} of {point.symbol}, at "
            f"{_listed([f'+{count:#x}' for count in sorted(function.counts)])}, but not the one at "
            f"+{offset:#x}: they take another path through it"
        )


def _ways(function: int, symbols: Symbols, code: KernelCode, executed: Executed) -> Iterator[str]:
    functions = {symbols.function_at(address) for address in direct_calls(code, function)}
    callers = {entry[:2] for entry in functions if entry is not None and entry[0] != function}
    taken = sorted(name for address, name in callers if executed.at(address) is not None)
    untaken = sorted(name for address, name in callers if executed.at(address) is None)
    calling = f"{_listed(taken or untaken)} {'calls' if len(taken or untaken) == 1 else 'call'} it"
    if taken:
        yield f"{calling}; the measured calls execute that, on another path"
    elif untaken:
        yield f"{calling}; the measured calls execute none of that"
    else:
        yield "nothing calls it directly: it is called through a pointer, or inlined wherever it is used"
    if untaken or not callers:
        yield "where the compiler has inlined it, its instructions belong to the function around it"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(shown(names, 4, "{} more"))
