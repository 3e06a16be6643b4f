# SPDX-License-Identifier: GPL-2.0-only
"""What differs between two cells' profiles: by symbol, and by instruction in one. Code that only moved is equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.results.clones import paired
from orchestrator.results.profile import CellProfile, SymbolProfile


@dataclass(frozen=True)
class SymbolDifference:
    """A symbol's instructions per call in two profiles; None where it executed nothing."""

    title: str
    before: Fraction | None
    after: Fraction | None

    @property
    def change(self) -> Fraction:
        """What the second has more."""
        return (self.after or Fraction(0)) - (self.before or Fraction(0))


@dataclass(frozen=True)
class InstructionDifference:
    """An instruction of a function, ``text`` with the names of what it jumps to, and its executions per call.

    None stands for the side that does not execute it. Offsets are bytes behind the function.
    """

    text: str
    before: Fraction | None
    after: Fraction | None
    before_offset: int | None
    after_offset: int | None

    @property
    def change(self) -> Fraction:
        """What the second has more."""
        return (self.after or Fraction(0)) - (self.before or Fraction(0))


@dataclass(frozen=True)
class FunctionDifference:
    """A function compared by instruction: those that differ, in their order; ``equal`` is how many do not."""

    symbol: SymbolDifference
    instructions: Sequence[InstructionDifference]
    equal: int


@dataclass(frozen=True)
class ProfileDifference:
    """Two profiles compared: the symbols that differ, the largest change first; ``equal`` is how many do not.

    ``other_code`` has those that execute as many instructions, but not the same ones; they are not among the ``equal``.
    ``notes`` are sentences on what was compared.
    """

    before: CellProfile
    after: CellProfile
    symbols: Sequence[SymbolDifference]
    equal: int
    other_code: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def totals(self) -> tuple[Fraction, Fraction]:
        """Instructions per call of both."""
        return Fraction(self.before.executed, self.before.calls), Fraction(self.after.executed, self.after.calls)


@dataclass(frozen=True)
class SymbolPair:
    """The symbols that are one function in two profiles; those of one name are taken together."""

    before: Sequence[SymbolProfile]
    after: Sequence[SymbolProfile]

    @property
    def title(self) -> str:
        """The name; both where a compiler has changed it: ``f -> f.isra.0``."""
        return " -> ".join(dict.fromkeys(side[0].title for side in (self.before, self.after) if side))


def symbol_pairs(before: CellProfile, after: CellProfile) -> Sequence[SymbolPair]:
    """The symbols of two profiles by name."""
    first, second = _by_title(before), _by_title(after)
    return [
        SymbolPair(() if one is None else first[one], () if other is None else second[other])
        for one, other in paired(first, second)
    ]


def difference(before: CellProfile, after: CellProfile) -> ProfileDifference:
    """Compare two profiles by the names of their symbols."""
    found = [symbol_difference(pair, before.calls, after.calls) for pair in symbol_pairs(before, after)]
    differing = [one for one in found if one.before != one.after]
    differing.sort(key=lambda one: (-abs(one.change), one.title))
    return ProfileDifference(before, after, differing, len(found) - len(differing))


def symbol_difference(pair: SymbolPair, calls_before: int, calls_after: int) -> SymbolDifference:
    """How much a symbol executed of two profiles with so many calls."""
    return SymbolDifference(pair.title, _per_call(pair.before, calls_before), _per_call(pair.after, calls_after))


def _by_title(profile: CellProfile) -> Mapping[str, list[SymbolProfile]]:
    found: dict[str, list[SymbolProfile]] = {}
    for symbol in profile.symbols:
        found.setdefault(symbol.title, []).append(symbol)
    return found


def _per_call(symbols: Sequence[SymbolProfile], calls: int) -> Fraction | None:
    return Fraction(sum(one.executed for one in symbols), calls) if symbols else None
