# SPDX-License-Identifier: GPL-2.0-only
"""Profiles and differences for programs, by documented models. Numbers are instructions, or executions, per call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.results.stored_profile import (
    CacheProfile,
    CallChange,
    CallCost,
    CellProfile,
    FunctionDifference,
    Misses,
    ProfileDifference,
)


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CacheJson(_Answer):
    """A cache or TLB that was modelled, in bytes; accesses per call, and ``misses_again`` of as many calls again."""

    name: str
    size: int
    ways: int
    line: int
    accesses: float
    hits: float
    misses: float
    misses_again: float


class SymbolJson(_Answer):
    """A symbol of a profile; ``misses`` per call by kind, empty where no caches were modelled.

    ``repetitions`` of string instructions are among the ``instructions``.
    """

    name: str
    place: str
    module: str | None
    address: str
    instructions: float
    repetitions: float
    misses: dict[str, float]


class ProfileJson(_Answer):
    """A cell's profile, the largest symbol first."""

    cell: str
    calls: int
    instructions: float
    repetitions: float
    symbols: list[SymbolJson]
    classes: dict[str, float]
    caches: list[CacheJson]


class CallJson(_Answer):
    """A call: who called whom up to it, with semicolons between; its instructions with what it calls, and its own."""

    stack: str
    instructions: float
    own: float


class TreeJson(_Answer):
    """A cell's calls, each behind its caller, in the order of their names."""

    cell: str
    calls: int
    instructions: float
    tree: list[CallJson]


class SideJson(_Answer):
    """A cell that was compared."""

    cell: str
    instructions: float


class SymbolChangeJson(_Answer):
    """A symbol that differs; null where a side does not execute it."""

    symbol: str
    before: float | None
    after: float | None
    change: float


class DifferenceJson(_Answer):
    """Two cells by symbol, the largest change first."""

    before: SideJson
    after: SideJson
    change: float
    equal: int
    other_code: list[str]
    notes: list[str]
    symbols: list[SymbolChangeJson]


class InstructionChangeJson(_Answer):
    """An instruction that differs; null where a side does not execute it."""

    text: str
    before: float | None
    after: float | None
    change: float
    before_offset: int | None
    after_offset: int | None


class FunctionDifferenceJson(_Answer):
    """One function of two cells by instruction, in the order of its code."""

    before: SideJson
    after: SideJson
    notes: list[str]
    symbol: SymbolChangeJson
    equal: int
    instructions: list[InstructionChangeJson]


class CallChangeJson(_Answer):
    """A call of two cells, with all that it calls; null where a side lacks it. ``own_change`` is of its own alone."""

    stack: str
    before: float | None
    after: float | None
    change: float
    own_change: float


class TreeDifferenceJson(_Answer):
    """The calls of two cells in which something differs, each behind its caller, in the order of their names."""

    before: SideJson
    after: SideJson
    change: float
    notes: list[str]
    tree: list[CallChangeJson]


def profile_json(profile: CellProfile, classes: Mapping[str, Fraction]) -> dict[str, Any]:
    """A profile by symbol and class."""
    return ProfileJson(
        cell=profile.cell,
        calls=profile.calls,
        instructions=float(Fraction(profile.executed, profile.calls)),
        repetitions=float(Fraction(profile.repetitions, profile.calls)),
        symbols=[
            SymbolJson(
                name=one.name,
                place=one.place,
                module=one.module,
                address=f"{one.address:#x}",
                instructions=float(Fraction(one.executed, profile.calls)),
                repetitions=float(Fraction(one.repetitions, profile.calls)),
                misses=_misses(profile, one.missed) if profile.caches else {},
            )
            for one in profile.symbols
        ],
        classes={name: float(value) for name, value in classes.items()},
        caches=[_cache(profile, one) for one in profile.caches],
    ).model_dump()


def tree_json(profile: CellProfile, tree: CallCost) -> dict[str, Any]:
    """A profile's calls."""
    return TreeJson(
        cell=profile.cell,
        calls=profile.calls,
        instructions=float(tree.total),
        tree=[
            CallJson(stack=stack, instructions=float(call.total), own=float(call.own))
            for stack, call in _costs(tree, "")
        ],
    ).model_dump()


def _misses(profile: CellProfile, missed: Misses) -> dict[str, float]:
    return {kind: float(Fraction(count, profile.calls)) for kind, count in missed._asdict().items()}


def _cache(profile: CellProfile, cache: CacheProfile) -> CacheJson:
    def per_call(count: int) -> float:
        return float(Fraction(count, profile.calls))

    return CacheJson(
        name=cache.name,
        size=cache.size,
        ways=cache.ways,
        line=cache.line,
        accesses=per_call(cache.accesses),
        hits=per_call(cache.hits),
        misses=per_call(cache.misses),
        misses_again=per_call(cache.repeated),
    )


def difference_json(difference: ProfileDifference) -> dict[str, Any]:
    """What differs by symbol."""
    before, after = _sides(difference)
    return DifferenceJson(
        before=before,
        after=after,
        change=_change(difference),
        equal=difference.equal,
        other_code=list(difference.other_code),
        notes=list(difference.notes),
        symbols=[
            SymbolChangeJson(
                symbol=one.title, before=_float(one.before), after=_float(one.after), change=float(one.change)
            )
            for one in difference.symbols
        ],
    ).model_dump()


def function_json(difference: ProfileDifference, function: FunctionDifference) -> dict[str, Any]:
    """What differs in one function."""
    before, after = _sides(difference)
    symbol = function.symbol
    return FunctionDifferenceJson(
        before=before,
        after=after,
        notes=list(difference.notes),
        symbol=SymbolChangeJson(
            symbol=symbol.title, before=_float(symbol.before), after=_float(symbol.after), change=float(symbol.change)
        ),
        equal=function.equal,
        instructions=[
            InstructionChangeJson(
                text=one.text,
                before=_float(one.before),
                after=_float(one.after),
                change=float(one.change),
                before_offset=one.before_offset,
                after_offset=one.after_offset,
            )
            for one in function.instructions
        ],
    ).model_dump()


def tree_difference_json(difference: ProfileDifference, tree: CallChange) -> dict[str, Any]:
    """What differs by call."""
    before, after = _sides(difference)
    return TreeDifferenceJson(
        before=before,
        after=after,
        change=_change(difference),
        notes=list(difference.notes),
        tree=[
            CallChangeJson(
                stack=stack,
                before=None if call.before is None else float(call.before.total),
                after=None if call.after is None else float(call.after.total),
                change=float(call.change),
                own_change=float(call.own_change),
            )
            for stack, call in _changes(tree, "")
        ],
    ).model_dump()


def text(content: Sequence[Mapping[str, Any]]) -> str:
    """As JSON with a newline at the end."""
    return json.dumps(list(content), indent=2) + "\n"


def _sides(difference: ProfileDifference) -> tuple[SideJson, SideJson]:
    before, after = difference.totals
    return (
        SideJson(cell=difference.before.cell, instructions=float(before)),
        SideJson(cell=difference.after.cell, instructions=float(after)),
    )


def _change(difference: ProfileDifference) -> float:
    before, after = difference.totals
    return float(after - before)


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _costs(caller: CallCost, above: str) -> Iterator[tuple[str, CallCost]]:
    for one in caller.called:
        stack = f"{above};{one.name}" if above else one.name
        yield stack, one
        yield from _costs(one, stack)


def _changes(caller: CallChange, above: str) -> Iterator[tuple[str, CallChange]]:
    for one in caller.called:
        if one.moved:
            stack = f"{above};{one.name}" if above else one.name
            yield stack, one
            yield from _changes(one, stack)
