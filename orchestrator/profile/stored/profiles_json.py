# SPDX-License-Identifier: GPL-2.0-only
"""What ``profile --format json`` prints (docs/profiles.md): profiles, trees of calls, differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from orchestrator.catalog.cpus import CacheName
from orchestrator.profile.stored.call_tree import CallCost
from orchestrator.profile.stored.cell_profile import CacheProfile, CellProfile, Place, SymbolProfile
from orchestrator.profile.stored.profile_difference import (
    FunctionDifference,
    InstructionDifference,
    ProfileDifference,
    SymbolDifference,
)
from orchestrator.results.printed_json import Printed


class PrintedSymbol(Printed):
    """A symbol; figures are per call."""

    name: str
    """The function, the program, or the purpose of generated code."""
    place: Place
    """Whose code it is."""
    module: str | None
    """The module that has it."""
    address: str
    """Its start, in hex; relative to the text of its module."""
    instructions: float
    """Executed instructions."""
    repetitions: float
    """Repetitions of string instructions among them, which a CPU's counter leaves out."""
    misses: Mapping[str, float]
    """Cache misses by kind, if caches were modelled."""

    @classmethod
    def of(cls, symbol: SymbolProfile, profile: CellProfile) -> PrintedSymbol:
        missed = symbol.missed._asdict() if profile.caches else {}
        return cls(
            name=symbol.name,
            place=symbol.place,
            module=symbol.module,
            address=f"{symbol.address:#x}",
            instructions=float(profile.per_call(symbol.executed)),
            repetitions=float(profile.per_call(symbol.repetitions)),
            misses={kind: float(profile.per_call(count)) for kind, count in missed.items()},
        )


class PrintedCache(Printed):
    """A modelled cache; counts are per call."""

    name: CacheName
    """Which cache, or which TLB."""
    size: int
    """Bytes."""
    ways: int
    """Lines of a set."""
    line: int
    """Bytes of a line; a TLB's lines are pages."""
    accesses: float
    """Lookups."""
    hits: float
    """Lookups that found their line."""
    misses: float
    """Lookups that did not."""
    misses_again: float
    """Misses of a second pass of the same calls."""

    @classmethod
    def of(cls, cache: CacheProfile, profile: CellProfile) -> PrintedCache:
        accesses, hits, misses, again = (
            float(profile.per_call(count)) for count in (cache.accesses, cache.hits, cache.misses, cache.repeated)
        )
        return cls(
            name=cache.name,
            size=cache.size,
            ways=cache.ways,
            line=cache.line,
            accesses=accesses,
            hits=hits,
            misses=misses,
            misses_again=again,
        )


class PrintedProfile(Printed):
    """A cell's profile; figures are per call."""

    cell: str
    """The cell's id."""
    calls: int
    """Profiled calls."""
    instructions: float
    """Executed instructions; the cell's value."""
    repetitions: float
    """Repetitions of string instructions among them, which a CPU's counter leaves out."""
    symbols: Sequence[PrintedSymbol]
    """The instructions by symbol, the largest first."""
    classes: Mapping[str, float]
    """The instructions by class."""
    caches: Sequence[PrintedCache]
    """The modelled caches."""

    @classmethod
    def of(cls, profile: CellProfile, classes: Mapping[str, Fraction]) -> PrintedProfile:
        return cls(
            cell=profile.cell,
            calls=profile.calls,
            instructions=float(profile.per_call(profile.executed)),
            repetitions=float(profile.per_call(profile.repetitions)),
            symbols=[PrintedSymbol.of(symbol, profile) for symbol in profile.symbols],
            classes={name: float(count) for name, count in classes.items()},
            caches=[PrintedCache.of(cache, profile) for cache in profile.caches],
        )


class PrintedCall(Printed):
    """A function in the tree of calls; figures are per call of the cell."""

    stack: str
    """The names from the program to the function, separated by semicolons."""
    instructions: float
    """Its instructions with those of the functions that it calls."""
    own: float
    """Its instructions without them."""

    @classmethod
    def below(cls, caller: CallCost, above: str = "") -> Iterator[PrintedCall]:
        """The calls of a caller, each before its own calls."""
        for cost in caller.called:
            stack = f"{above}{cost.name}"
            yield cls(stack=stack, instructions=float(cost.total), own=float(cost.own))
            yield from cls.below(cost, f"{stack};")


class PrintedTree(Printed):
    """A cell's tree of calls."""

    cell: str
    """The cell's id."""
    calls: int
    """Profiled calls."""
    instructions: float
    """Executed instructions per call."""
    tree: Sequence[PrintedCall]
    """All calls, each after its caller."""

    @classmethod
    def of(cls, profile: CellProfile, tree: CallCost) -> PrintedTree:
        total = float(tree.total)
        return cls(cell=profile.cell, calls=profile.calls, instructions=total, tree=list(PrintedCall.below(tree)))


class ProfiledCell(Printed):
    """One of two compared cells."""

    cell: str
    """The cell's id."""
    instructions: float
    """Executed instructions per call."""

    @classmethod
    def both(cls, difference: ProfileDifference) -> tuple[ProfiledCell, ProfiledCell]:
        before, after = difference.totals
        return (
            cls(cell=difference.before.cell, instructions=float(before)),
            cls(cell=difference.after.cell, instructions=float(after)),
        )


class PrintedDifference(Printed):
    """Two profiles compared by symbol, or by source line."""

    before: ProfiledCell
    """The cell before."""
    after: ProfiledCell
    """The cell after."""
    change: float
    """How many more instructions a call executes after."""
    equal: int
    """How many symbols execute as many instructions, and the same ones."""
    other_code: Sequence[str]
    """The symbols that execute as many instructions, but different ones."""
    notes: Sequence[str]
    """Sentences on the comparison."""
    symbols: Sequence[SymbolDifference]
    """The symbols that differ, the largest change first."""

    @classmethod
    def of(cls, difference: ProfileDifference) -> PrintedDifference:
        first, second = difference.totals
        before, after = ProfiledCell.both(difference)
        return cls(
            before=before,
            after=after,
            change=float(second - first),
            equal=difference.equal,
            other_code=difference.other_code,
            notes=difference.notes,
            symbols=difference.symbols,
        )


class PrintedFunction(Printed):
    """A function of two profiles compared by instruction."""

    before: ProfiledCell
    """The cell before."""
    after: ProfiledCell
    """The cell after."""
    notes: Sequence[str]
    """Sentences on the comparison."""
    symbol: SymbolDifference
    """The function as a whole."""
    equal: int
    """How many instructions are executed equally often."""
    instructions: Sequence[InstructionDifference]
    """The instructions that differ, in order."""

    @classmethod
    def of(cls, difference: ProfileDifference, function: FunctionDifference) -> PrintedFunction:
        before, after = ProfiledCell.both(difference)
        return cls(
            before=before,
            after=after,
            notes=difference.notes,
            symbol=function.symbol,
            equal=function.equal,
            instructions=function.instructions,
        )
