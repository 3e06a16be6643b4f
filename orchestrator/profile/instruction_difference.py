# SPDX-License-Identifier: GPL-2.0-only
"""What differs within a function of two profiles: instructions that are new, gone, or executed differently often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from fractions import Fraction

from orchestrator.catalog.spelling import nearest
from orchestrator.errors import UsageError
from orchestrator.profile.relocated import CodeOfProfile, Relocated
from orchestrator.results.profile import CellProfile, SymbolProfile
from orchestrator.results.profile_difference import (
    FunctionDifference,
    InstructionDifference,
    ProfileDifference,
    SymbolPair,
    symbol_difference,
    symbol_pairs,
)

_LONG = 1 << 24
"""Pairs of instructions above which frequent ones are no place to begin at: 4096 by 4096 of 20 kinds take 0.2 s."""


@dataclass(frozen=True)
class _Executed:
    """An instruction with its executions per call."""

    code: Relocated
    offset: int
    executed: Fraction


class ComparedCode:
    """Two profiles whose code is compared: wherever it was put, and whatever it refers to was put."""

    def __init__(self, before: CellProfile, after: CellProfile) -> None:
        self._before, self._after = before, after
        self._code = CodeOfProfile(before), CodeOfProfile(after)

    def function(self, name: str) -> FunctionDifference:
        """Compare the function of this name, with its module in brackets or without.

        Raises UsageError where neither profile has it, and where the profiles are of two architectures.
        """
        if self._before.arch != self._after.arch:
            what = f"instructions of {self._before.arch} and of {self._after.arch} cannot be compared"
            raise UsageError(what, hint="compare them by symbol: leave out --symbol")
        pairs = symbol_pairs(self._before, self._after)
        wanted = [pair for pair in pairs if any(name in (one.name, one.title) for one in (*pair.before, *pair.after))]
        if not wanted:
            guess = nearest(name, [one.name for pair in pairs for one in (*pair.before, *pair.after)])
            hint = f"did you mean {guess}?" if guess else ""
            raise UsageError(f"calls of neither cell execute '{name}'", hint=hint)
        if len(wanted) > 1:
            titles = [pair.title for pair in wanted]
            raise UsageError(f"{len(wanted)} functions have the name '{name}'", detail=titles, hint="name one of these")
        return self._compared(wanted[0])

    def _compared(self, pair: SymbolPair) -> FunctionDifference:
        first, second = self._executed(pair)
        symbol = symbol_difference(pair, self._before.calls, self._after.calls)
        both = list(_aligned(first, second))
        differing = [one for one in both if one.before != one.after]
        return FunctionDifference(symbol, differing, len(both) - len(differing))

    def is_same(self, pair: SymbolPair) -> bool:
        """Whether two symbols executed the same instructions, each as often per call."""
        first, second = self._executed(pair)
        return [(one.code.key, one.executed) for one in first] == [(one.code.key, one.executed) for one in second]

    def _executed(self, pair: SymbolPair) -> tuple[Sequence[_Executed], Sequence[_Executed]]:
        before, after = self._code
        return (
            _instructions(pair.before, before, self._before.calls),
            _instructions(pair.after, after, self._after.calls),
        )


def with_code(difference: ProfileDifference) -> ProfileDifference:
    """The difference whose equal symbols also executed the same instructions.

    Of two architectures it stays as it is: their instructions are never the same.
    """
    before, after = difference.before, difference.after
    if before.arch != after.arch:
        return difference
    compared = ComparedCode(before, after)
    equal = (
        pair
        for pair in symbol_pairs(before, after)
        if (one := symbol_difference(pair, before.calls, after.calls)).before == one.after
    )
    other = sorted(pair.title for pair in equal if not compared.is_same(pair))
    return replace(difference, equal=difference.equal - len(other), other_code=other)


def _instructions(symbols: Sequence[SymbolProfile], code: CodeOfProfile, calls: int) -> Sequence[_Executed]:
    """Those of the functions of one name, one function after the other, in an order that no address decides."""
    functions = [
        [
            _Executed(relocated, one.offset, Fraction(one.executed, calls))
            for one, relocated in zip(symbol.instructions, code.relocated(symbol), strict=True)
        ]
        for symbol in symbols
    ]
    functions.sort(key=lambda function: [(one.code.key, one.executed) for one in function])
    return [one for function in functions for one in function]


def _aligned(before: Sequence[_Executed], after: Sequence[_Executed]) -> Iterator[InstructionDifference]:
    """Both sequences as one: what stands in both in the same order belongs together."""
    # What both begin and end with is found first: the search in between is quadratic.
    shortest = min(len(before), len(after))
    begin = next((at for at in range(shortest) if before[at].code.key != after[at].code.key), shortest)
    rest = shortest - begin
    end = next((at for at in range(rest) if before[-1 - at].code.key != after[-1 - at].code.key), rest)
    keys = [[one.code.key for one in side[begin : len(side) - end]] for side in (before, after)]
    is_long = len(keys[0]) * len(keys[1]) > _LONG
    between = SequenceMatcher(None, keys[0], keys[1], autojunk=is_long).get_matching_blocks()
    blocks = [
        (0, 0, begin),
        *((begin + one.a, begin + one.b, one.size) for one in between),
        (len(before) - end, len(after) - end, end),
    ]
    at_first = at_second = 0
    for first, second, size in blocks:
        yield from (_one_side(one, None) for one in before[at_first:first])
        yield from (_one_side(None, one) for one in after[at_second:second])
        at_first, at_second = first + size, second + size
        for one, other in zip(before[first:at_first], after[second:at_second], strict=True):
            yield InstructionDifference(other.code.text, one.executed, other.executed, one.offset, other.offset)


def _one_side(before: _Executed | None, after: _Executed | None) -> InstructionDifference:
    one = before or after
    assert one is not None
    return InstructionDifference(
        one.code.text,
        None if before is None else before.executed,
        None if after is None else after.executed,
        None if before is None else before.offset,
        None if after is None else after.offset,
    )
