# SPDX-License-Identifier: GPL-2.0-only
"""A function's executed instructions with their counts, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from orchestrator.catalog.data import did_you_mean
from orchestrator.errors import UsageError
from orchestrator.profile.code.relocated_code import CodeOfProfile
from orchestrator.profile.stored.cell_profile import CellProfile, SymbolProfile
from orchestrator.report.figures import number as shown_number


def annotated(profiles: Sequence[CellProfile], function: str) -> str:
    """Executed instructions of the functions of one name, below the id of each cell whose calls execute one.

    Raises UsageError if no cell's calls do.
    """
    texts = []
    for profile in profiles:
        symbol_profiles = [symbol for symbol in profile.symbols if function in (symbol.name, symbol.title)]
        lines = [line for symbol in symbol_profiles for line in (symbol.placed_title, *_lines(profile, symbol), "")]
        texts += ["\n".join((profile.cell, *lines))] if lines else []
    if not texts:
        raise not_executed(profiles, function)
    return "\n".join(texts)


def not_executed(profiles: Sequence[CellProfile], function: str) -> UsageError:
    """The error for a function that no cell's calls execute."""
    hint = did_you_mean(function, dict.fromkeys(symbol.name for profile in profiles for symbol in profile.symbols))
    who = f"cell {profiles[0].cell} do not" if len(profiles) == 1 else f"none of the {len(profiles)} cells"
    return UsageError(f"calls of {who} execute '{function}'", hint=hint)


def _lines(profile: CellProfile, symbol: SymbolProfile) -> Iterator[str]:
    rows: Sequence[tuple[str, str, str, str]] = [
        (
            shown_number(float(Fraction(instruction_count.executed, profile.calls))),
            f"+{instruction_count.offset:#x}",
            instruction_count.code,
            relocated.text,
        )
        for instruction_count, relocated in zip(
            symbol.instructions, CodeOfProfile(profile).relocated(symbol), strict=True
        )
    ]
    counts, offsets, codes = (max((len(row[column]) for row in rows), default=0) for column in range(3))
    for count, offset, code, text in rows:
        yield f"{count:>{counts}}  {offset:<{offsets}}  {code:<{codes}}  {text}"
