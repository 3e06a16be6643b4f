# SPDX-License-Identifier: GPL-2.0-only
"""Profiles and differences for programs, as docs/profiles.md has them: instructions, or executions, per call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from orchestrator.results.stored_profile import (
    CallChange,
    CallCost,
    CellProfile,
    FunctionDifference,
    InstructionDifference,
    ProfileDifference,
    SymbolDifference,
)


def text(content: Sequence[Mapping[str, Any]]) -> str:
    """As JSON with a newline at the end."""
    return json.dumps(list(content), indent=2) + "\n"


def profile_json(profile: CellProfile, classes: Mapping[str, Fraction]) -> dict[str, Any]:
    """A profile by symbol, the largest first, and by class."""

    def per_call(count: int) -> float:
        return float(Fraction(count, profile.calls))

    return {
        "cell": profile.cell,
        "calls": profile.calls,
        "instructions": per_call(profile.executed),
        "repetitions": per_call(profile.repetitions),
        "symbols": [
            {
                "name": one.name,
                "place": one.place,
                "module": one.module,
                "address": f"{one.address:#x}",
                "instructions": per_call(one.executed),
                "repetitions": per_call(one.repetitions),
                "misses": {kind: per_call(count) for kind, count in one.missed._asdict().items()}
                if profile.caches
                else {},
            }
            for one in profile.symbols
        ],
        "classes": {name: float(value) for name, value in classes.items()},
        "caches": [
            {
                **one.model_dump(include={"name", "size", "ways", "line"}),
                "accesses": per_call(one.accesses),
                "hits": per_call(one.hits),
                "misses": per_call(one.misses),
                "misses_again": per_call(one.repeated),
            }
            for one in profile.caches
        ],
    }


def tree_json(profile: CellProfile, tree: CallCost) -> dict[str, Any]:
    """A profile's calls, each behind its caller, in the order of their names; ``stack`` has semicolons between them."""
    return {
        "cell": profile.cell,
        "calls": profile.calls,
        "instructions": float(tree.total),
        "tree": list(_costs(tree, "")),
    }


def _costs(caller: CallCost, above: str) -> Iterator[dict[str, Any]]:
    for one in caller.called:
        stack = f"{above}{one.name}"
        yield {"stack": stack, "instructions": float(one.total), "own": float(one.own)}
        yield from _costs(one, f"{stack};")


def difference_json(difference: ProfileDifference) -> dict[str, Any]:
    """What differs by symbol, the largest change first."""
    return {
        **_sides(difference),
        "change": _change(difference),
        "equal": difference.equal,
        "other_code": list(difference.other_code),
        "notes": list(difference.notes),
        "symbols": [symbol_json(one) for one in difference.symbols],
    }


def function_json(difference: ProfileDifference, function: FunctionDifference) -> dict[str, Any]:
    """What differs in one function, in the order of its code."""
    return {
        **_sides(difference),
        "notes": list(difference.notes),
        "symbol": symbol_json(function.symbol),
        "equal": function.equal,
        "instructions": [
            {"text": one.text, **_figures(one), "before_offset": one.before_offset, "after_offset": one.after_offset}
            for one in function.instructions
        ],
    }


def tree_difference_json(difference: ProfileDifference, tree: CallChange) -> dict[str, Any]:
    """The calls in which something differs, as in ``tree_json``."""
    return {
        **_sides(difference),
        "change": _change(difference),
        "notes": list(difference.notes),
        "tree": list(_changes(tree, "")),
    }


def _changes(caller: CallChange, above: str) -> Iterator[dict[str, Any]]:
    for one in caller.called:
        if one.moved:
            stack = f"{above}{one.name}"
            before, after = (None if side is None else float(side.total) for side in (one.before, one.after))
            yield {
                "stack": stack,
                "before": before,
                "after": after,
                "change": float(one.change),
                "own_change": float(one.own_change),
            }
            yield from _changes(one, f"{stack};")


def symbol_json(symbol: SymbolDifference) -> dict[str, Any]:
    """A symbol that differs; null where a side does not execute it."""
    return {"symbol": symbol.title, **_figures(symbol)}


def _figures(one: SymbolDifference | InstructionDifference) -> dict[str, float | None]:
    before, after = (None if side is None else float(side) for side in (one.before, one.after))
    return {"before": before, "after": after, "change": float(one.change)}


def _sides(difference: ProfileDifference) -> dict[str, Any]:
    before, after = map(float, difference.totals)
    return {
        "before": {"cell": difference.before.cell, "instructions": before},
        "after": {"cell": difference.after.cell, "instructions": after},
    }


def _change(difference: ProfileDifference) -> float:
    before, after = difference.totals
    return float(after - before)
