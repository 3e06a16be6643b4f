# SPDX-License-Identifier: GPL-2.0-only
"""The difference of two stored profiles: by symbol, by instruction, and by function in the tree of calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from orchestrator.profile.stored.cell_profile import ZERO, CellProfile, SymbolProfile, instructions_per_call, stem


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


class _Change:
    before: Fraction | None
    after: Fraction | None

    @property
    def change(self) -> Fraction:
        return (self.after or ZERO) - (self.before or ZERO)

    @property
    def figures(self) -> dict[str, float | None]:
        figures = {"before": self.before, "after": self.after, "change": self.change}
        return {name: None if figure is None else float(figure) for name, figure in figures.items()}


@dataclass(frozen=True)
class SymbolDifference(_Change):
    """A symbol's instructions per call in two profiles; None in a profile without it."""

    title: str
    before: Fraction | None
    after: Fraction | None

    def as_json(self) -> dict[str, Any]:
        return {"symbol": self.title, **self.figures}


@dataclass(frozen=True)
class InstructionDifference(_Change):
    """An instruction of a function, its ``text`` with the names of jump targets, and its executions per call.

    None stands for a profile that does not execute it. Offsets are in bytes from the function's start.
    """

    text: str
    before: Fraction | None
    after: Fraction | None
    before_offset: int | None
    after_offset: int | None

    def as_json(self) -> dict[str, Any]:
        offsets = {"before_offset": self.before_offset, "after_offset": self.after_offset}
        return {"text": self.text, **self.figures, **offsets}


@dataclass(frozen=True)
class FunctionDifference:
    """A function compared by instruction: those that differ, in order, and the number of ``equal`` ones."""

    symbol: SymbolDifference
    instructions: Sequence[InstructionDifference]
    equal: int

    def as_json(self) -> dict[str, Any]:
        instructions = [instruction.as_json() for instruction in self.instructions]
        return {"symbol": self.symbol.as_json(), "equal": self.equal, "instructions": instructions}


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

    def as_json(self, function: FunctionDifference | None = None) -> dict[str, Any]:
        """JSON as in docs/profiles.md: by symbol, or one function by instruction."""
        before, after = self.totals
        both = {
            "before": {"cell": self.before.cell, "instructions": float(before)},
            "after": {"cell": self.after.cell, "instructions": float(after)},
        }
        if function is not None:
            return {**both, "notes": list(self.notes), **function.as_json()}
        equal = {"equal": self.equal, "other_code": list(self.other_code), "notes": list(self.notes)}
        return {
            **both,
            "change": float(after - before),
            **equal,
            "symbols": [symbol.as_json() for symbol in self.symbols],
        }


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
    differences = [symbol_difference(pair, before.calls, after.calls) for pair in symbol_pairs(before, after)]
    differing = [symbol for symbol in differences if symbol.before != symbol.after]
    differing.sort(key=lambda symbol: (-abs(symbol.change), symbol.title))
    return ProfileDifference(before, after, differing, len(differences) - len(differing))


def symbol_difference(pair: SymbolPair, calls_before: int, calls_after: int) -> SymbolDifference:
    """The difference of a symbol in profiles of so many calls."""
    return SymbolDifference(
        pair.title, instructions_per_call(pair.before, calls_before), instructions_per_call(pair.after, calls_after)
    )


def _by_title(profile: CellProfile) -> Mapping[str, Sequence[SymbolProfile]]:
    profiles: dict[str, list[SymbolProfile]] = {}
    for symbol in profile.symbols:
        profiles.setdefault(symbol.title, []).append(symbol)
    return profiles
