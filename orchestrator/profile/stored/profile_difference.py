# SPDX-License-Identifier: GPL-2.0-only
"""The difference of two stored profiles: by symbol, by instruction, and by function in the tree of calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pydantic import computed_field

from orchestrator.profile.stored.cell_profile import (
    ZERO,
    CellProfile,
    PerCall,
    SymbolProfile,
    instructions_per_call,
    stem,
)
from orchestrator.results.printed_json import Printed


def paired(before: Iterable[str], after: Iterable[str]) -> Sequence[tuple[str | None, str | None]]:
    """Pair the names of two profiles: equal names, then the single clones of a function; None for a missing one."""
    first, second = dict.fromkeys(before), dict.fromkeys(after)
    pairs: list[tuple[str | None, str | None]] = [(name, name) for name in first if name in second]
    left: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for index, (names, partners) in enumerate([(first, second), (second, first)]):
        for name in names:
            if name not in partners:
                left[stem(name)][index].append(name)
    for ours, theirs in left.values():
        if len(ours) == len(theirs) == 1:
            pairs.append((ours[0], theirs[0]))
        else:
            pairs += [(name, None) for name in ours]
            pairs += [(None, name) for name in theirs]
    return pairs


class SymbolDifference(Printed):
    """A symbol whose instructions per call differ; None where it executes none."""

    symbol: str
    """Its name, with its module's."""
    before: PerCall | None
    """Instructions per call before."""
    after: PerCall | None
    """Instructions per call after."""

    @property
    def title(self) -> str:
        """The symbol's name, as of any symbol of a profile."""
        return self.symbol

    @computed_field  # type: ignore[prop-decorator]
    @property
    def change(self) -> PerCall:
        """How many more it executes."""
        return (self.after or ZERO) - (self.before or ZERO)


class InstructionDifference(Printed):
    """An instruction of a function: its executions per call, and its offset in bytes from the function's start.

    None stands for a profile that does not execute it.
    """

    text: str
    """The instruction, with the names of jump targets."""
    before: PerCall | None
    """Executions per call before."""
    after: PerCall | None
    """Executions per call after."""
    before_offset: int | None
    """Where it was."""
    after_offset: int | None
    """Where it is."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def change(self) -> PerCall:
        """How many more times it is executed."""
        return (self.after or ZERO) - (self.before or ZERO)


@dataclass(frozen=True)
class FunctionDifference:
    """A function compared by instruction: those that differ, in order, and the number of ``equal`` ones."""

    symbol: SymbolDifference
    instructions: Sequence[InstructionDifference]
    equal: int


@dataclass(frozen=True)
class ProfileDifference:
    """Two profiles compared: the symbols that differ, the largest change first, and the number of ``equal`` ones.

    ``other_code`` has the symbols that execute as many instructions, but different ones; they are not ``equal``.
    ``notes`` are sentences on the comparison. ``noun`` is what the symbols are: of a profile by lines they are lines.
    """

    before: CellProfile
    after: CellProfile
    symbols: Sequence[SymbolDifference]
    equal: int
    other_code: Sequence[str] = ()
    notes: Sequence[str] = ()
    noun: str = "symbol"

    @property
    def totals(self) -> tuple[Fraction, Fraction]:
        return self.before.per_call(self.before.executed), self.after.per_call(self.after.executed)


@dataclass(frozen=True)
class SymbolPair:
    """The symbols of one function in two profiles, with all symbols of the same name."""

    before: Sequence[SymbolProfile]
    after: Sequence[SymbolProfile]

    @property
    def title(self) -> str:
        """The name, or both if the compiler changed it: ``f -> f.isra.0``."""
        return " -> ".join(dict.fromkeys(symbols[0].title for symbols in (self.before, self.after) if symbols))


def symbol_pairs(before: CellProfile, after: CellProfile) -> Sequence[SymbolPair]:
    """Pair the symbols of two profiles by name."""
    first, second = _by_title(before), _by_title(after)
    return [
        SymbolPair(first.get(name or "", ()), second.get(other_name or "", ()))
        for name, other_name in paired(first, second)
    ]


def difference(before: CellProfile, after: CellProfile) -> ProfileDifference:
    """Compare two profiles by symbol names, so that code that only moved is equal."""
    pairs = symbol_pairs(before, after)
    differences = (symbol_difference(pair, before.calls, after.calls) for pair in pairs)
    differing = [symbol for symbol in differences if symbol.before != symbol.after]
    differing.sort(key=lambda symbol: (-abs(symbol.change), symbol.title))
    return ProfileDifference(before, after, differing, len(pairs) - len(differing))


def symbol_difference(pair: SymbolPair, calls_before: int, calls_after: int) -> SymbolDifference:
    """The difference of a symbol in profiles of so many calls."""
    return SymbolDifference(
        symbol=pair.title,
        before=instructions_per_call(pair.before, calls_before),
        after=instructions_per_call(pair.after, calls_after),
    )


def _by_title(profile: CellProfile) -> Mapping[str, Sequence[SymbolProfile]]:
    profiles: dict[str, list[SymbolProfile]] = {}
    for symbol in profile.symbols:
        profiles.setdefault(symbol.title, []).append(symbol)
    return profiles
