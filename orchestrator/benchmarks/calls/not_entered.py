# SPDX-License-Identifier: GPL-2.0-only
"""Why calls never came to a probe: what the same calls execute, and how the kernel's code leads to the function."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.artifacts.direct_calls import direct_calls
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.benchmarks.calls.executed import Executed
from orchestrator.errors import NotEntered
from orchestrator.probes.symbols import Symbols

_MOST_CALLERS = 4
_MOST_ALIKE = 2
_MOST_SUGGESTED = 5


@dataclass(frozen=True)
class MissedPoint:
    """A function of a kernel, and the place in it, that calls never came to; ``code`` is None where it is unknown."""

    symbol: str
    offset: int
    symbols: Symbols
    code: KernelCode | None

    @property
    def address(self) -> int:
        """Where the function begins."""
        return self.symbols.address(self.symbol)

    @property
    def module(self) -> str | None:
        """The module that has the function; None for one of the kernel itself."""
        return self.symbols.module(self.address)


def explained(error: NotEntered, point: MissedPoint, executed: Executed) -> NotEntered:
    """The error with whether the calls execute the function at all, how else it is reached, and what they enter."""
    return NotEntered(
        error.what, where=error.where, detail=[*error.detail, *_why(point, executed)], hint=_hint(point, executed)
    )


def _why(point: MissedPoint, executed: Executed) -> Iterator[str]:
    module = point.module
    function = executed.at(point.address) if module is None else executed.in_module(module, point.symbol)
    if function is None:
        yield f"these calls execute no instruction of {point.symbol}"
        yield from _ways(point, executed)
    elif point.offset in function.offsets:
        yield f"without the probe, these calls execute {point.symbol}+{point.offset:#x}"
    else:
        number = len(function.offsets)
        yield (
            f"these calls execute {number} instruction{'s' * (number != 1)} of {point.symbol}, at "
            f"{_listed([f'+{offset:#x}' for offset in sorted(function.offsets)])}, but not the one at "
            f"+{point.offset:#x}: they are on another path in it"
        )


def _ways(point: MissedPoint, executed: Executed) -> Iterator[str]:
    """How the kernel's code leads to a function that is not executed."""
    if point.code is None or point.module is not None:  # the kernel's image has no call of a module's functions
        return
    found = {point.symbols.function_at(address) for address in direct_calls(point.code, point.address)}
    callers = {one[:2] for one in found if one is not None and one[0] != point.address}
    taken = sorted(name for address, name in callers if executed.at(address) is not None)
    others = sorted(name for address, name in callers if executed.at(address) is None)
    if taken:
        yield f"{_listed(taken)} {_calls(taken)} it, and they execute that: they are on another path there"
    elif others:
        yield f"{_listed(others)} {_calls(others)} it, and they execute none of that: they are on another path"
    else:
        yield "nothing calls it by its address: it is called through a pointer, or inlined wherever it is used"
    if others or not callers:
        yield "where the compiler has inlined it, its instructions are those of the function that it is in"


def _hint(point: MissedPoint, executed: Executed) -> str:
    names = [one.name for one in executed.functions if one.refusal is None]
    alike = difflib.get_close_matches(point.symbol, names, n=_MOST_ALIKE, cutoff=0.6)
    suggested = [one for one in dict.fromkeys([*alike, *names]) if one != point.symbol][:_MOST_SUGGESTED]
    return f"these calls enter: {', '.join(suggested)}" if suggested else ""


def _calls(callers: Sequence[str]) -> str:
    return "calls" if len(callers) == 1 else "call"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_CALLERS
    return ", ".join([*names[:_MOST_CALLERS], *([f"{more} more"] if more > 0 else [])])
