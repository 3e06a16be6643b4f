# SPDX-License-Identifier: GPL-2.0-only
"""Functions of two profiles compared by instruction, independently of addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from fractions import Fraction
from typing import NamedTuple

from orchestrator.catalog.data import did_you_mean
from orchestrator.errors import UsageError
from orchestrator.profile.code.relocated_code import CodeOfProfile, Relocated
from orchestrator.profile.stored.cell_profile import CellProfile, SymbolProfile
from orchestrator.profile.stored.profile_difference import (
    FunctionDifference,
    InstructionDifference,
    ProfileDifference,
    SymbolPair,
    symbol_difference,
    symbol_pairs,
)

_LONG = 1 << 24
"""Pairs of instructions above which frequent ones start no match: 4096 by 4096 of 20 kinds take 0.2 s."""


class _Executed(NamedTuple):
    code: Relocated
    offset: int
    executed: Fraction


class ComparedCode:
    """Two profiles whose code is compared independently of addresses."""

    def __init__(self, before: CellProfile, after: CellProfile) -> None:
        self._before, self._after = before, after
        self._code = CodeOfProfile(before), CodeOfProfile(after)

    def function(self, name: str) -> FunctionDifference:
        """Compare the functions of this name, with or without the module in brackets.

        Raises UsageError if neither profile has it, or the profiles are of two architectures.
        """
        if self._before.arch != self._after.arch:
            what = f"instructions of {self._before.arch} and of {self._after.arch} cannot be compared"
            raise UsageError(what, hint="compare them by symbol: leave out --symbol")
        pairs = symbol_pairs(self._before, self._after)
        wanted_pairs = [
            pair
            for pair in pairs
            if any(name in (profile.name, profile.title) for profile in (*pair.before, *pair.after))
        ]
        if not wanted_pairs:
            hint = did_you_mean(name, [profile.name for pair in pairs for profile in (*pair.before, *pair.after)])
            raise UsageError(f"calls of neither cell execute '{name}'", hint=hint)
        if len(wanted_pairs) > 1:
            titles = [pair.title for pair in wanted_pairs]
            raise UsageError(
                f"{len(wanted_pairs)} functions have the name '{name}'", detail=titles, hint="name one of these"
            )
        symbol = symbol_difference(wanted_pairs[0], self._before.calls, self._after.calls)
        both = list(_aligned(*self._executed(wanted_pairs[0])))
        differing = [difference for difference in both if difference.before != difference.after]
        return FunctionDifference(symbol, differing, len(both) - len(differing))

    def is_same(self, pair: SymbolPair) -> bool:
        first, second = self._executed(pair)
        return [(executed.code.key, executed.executed) for executed in first] == [
            (executed.code.key, executed.executed) for executed in second
        ]

    def _executed(self, pair: SymbolPair) -> tuple[Sequence[_Executed], Sequence[_Executed]]:
        before, after = self._code
        first = _instructions(pair.before, before, self._before.calls)
        return first, _instructions(pair.after, after, self._after.calls)


def with_code(difference: ProfileDifference) -> ProfileDifference:
    """The difference in which equal symbols have also executed the same instructions.

    Returned unchanged for two architectures, whose instructions are never the same.
    """
    before, after = difference.before, difference.after
    if before.arch != after.arch:
        return difference
    compared, differing = ComparedCode(before, after), {symbol.title for symbol in difference.symbols}
    equal = (pair for pair in symbol_pairs(before, after) if pair.title not in differing)
    other_code = sorted(pair.title for pair in equal if not compared.is_same(pair))
    return replace(difference, equal=difference.equal - len(other_code), other_code=other_code)


def _instructions(symbols: Sequence[SymbolProfile], code: CodeOfProfile, calls: int) -> Sequence[_Executed]:
    """The executed instructions of the functions of one name, in an order independent of addresses."""
    functions = [
        [
            _Executed(relocated, count.offset, Fraction(count.executed, calls))
            for count, relocated in zip(symbol.instructions, code.relocated(symbol), strict=True)
        ]
        for symbol in symbols
    ]
    functions.sort(key=lambda function: [(executed.code.key, executed.executed) for executed in function])
    return [executed for function in functions for executed in function]


def _aligned(before: Sequence[_Executed], after: Sequence[_Executed]) -> Iterator[InstructionDifference]:
    """Align both sequences by what they have in common in the same order."""
    # Strip the common start and end first: the search in between is quadratic.
    shortest = min(len(before), len(after))
    begin = next((at for at in range(shortest) if before[at].code.key != after[at].code.key), shortest)
    rest = shortest - begin
    end = next((at for at in range(rest) if before[-1 - at].code.key != after[-1 - at].code.key), rest)
    keys = [[executed.code.key for executed in side[begin : len(side) - end]] for side in (before, after)]
    is_long = len(keys[0]) * len(keys[1]) > _LONG
    between = SequenceMatcher(None, keys[0], keys[1], autojunk=is_long).get_matching_blocks()
    blocks = [
        (0, 0, begin),
        *((begin + match.a, begin + match.b, match.size) for match in between),
        (len(before) - end, len(after) - end, end),
    ]
    at_first = at_second = 0
    for first, second, size in blocks:
        yield from (_difference(executed, None) for executed in before[at_first:first])
        yield from (_difference(None, executed) for executed in after[at_second:second])
        at_first, at_second = first + size, second + size
        yield from map(_difference, before[first:at_first], after[second:at_second])


def _difference(before: _Executed | None, after: _Executed | None) -> InstructionDifference:
    executed = after or before
    assert executed is not None
    return InstructionDifference(
        text=executed.code.text,
        before=None if before is None else before.executed,
        after=None if after is None else after.executed,
        before_offset=None if before is None else before.offset,
        after_offset=None if after is None else after.offset,
    )


def functions_of(
    differences: Sequence[ProfileDifference], name: str
) -> Sequence[tuple[ProfileDifference, FunctionDifference]]:
    """The function ``name`` in each of the differences that have it.

    Raises UsageError as ``ComparedCode.function`` does if it cannot be compared in any of them.
    """
    pairs: list[tuple[ProfileDifference, FunctionDifference]] = []
    refusal: UsageError | None = None
    for profile_difference in differences:
        try:
            pairs.append(
                (profile_difference, ComparedCode(profile_difference.before, profile_difference.after).function(name))
            )
        except UsageError as error:
            refusal = refusal or error
    if not pairs and refusal is not None:
        raise refusal
    return pairs
