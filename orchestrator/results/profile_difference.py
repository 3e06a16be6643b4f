# SPDX-License-Identifier: GPL-2.0-only
"""What differs between two cells' profiles, by symbol: code that only moved is equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.results.profile import CellProfile


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
class ProfileDifference:
    """Two profiles compared: the symbols that differ, the largest change first; ``equal`` is how many do not."""

    before: CellProfile
    after: CellProfile
    symbols: Sequence[SymbolDifference]
    equal: int

    @property
    def totals(self) -> tuple[Fraction, Fraction]:
        """Instructions per call of both."""
        return Fraction(self.before.executed, self.before.calls), Fraction(self.after.executed, self.after.calls)


def difference(before: CellProfile, after: CellProfile) -> ProfileDifference:
    """Compare two profiles by the names of their symbols."""
    first, second = _per_call(before), _per_call(after)
    found = [SymbolDifference(title, first.get(title), second.get(title)) for title in {**first, **second}]
    differing = [one for one in found if one.before != one.after]
    differing.sort(key=lambda one: (-abs(one.change), one.title))
    return ProfileDifference(before, after, differing, len(found) - len(differing))


def _per_call(profile: CellProfile) -> Mapping[str, Fraction]:
    """Instructions per call by symbol; functions of one name are taken together."""
    sums: dict[str, Fraction] = {}
    for symbol in profile.symbols:
        sums[symbol.title] = sums.get(symbol.title, Fraction(0)) + Fraction(symbol.executed, profile.calls)
    return sums
