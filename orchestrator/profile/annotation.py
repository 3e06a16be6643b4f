# SPDX-License-Identifier: GPL-2.0-only
"""The instructions of a function with how often a call executes each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from orchestrator.catalog.spelling import nearest
from orchestrator.errors import UsageError
from orchestrator.profile.relocated import CodeOfProfile
from orchestrator.report.figures import number
from orchestrator.results.profile import CellProfile, SymbolProfile


def annotated(profile: CellProfile, function: str) -> str:
    """Executed instructions of the functions of one name. Raises UsageError where the profile has none."""
    found = [symbol for symbol in profile.symbols if function in (symbol.name, symbol.title)]
    if not found:
        guess = nearest(function, [symbol.name for symbol in profile.symbols])
        hint = f"did you mean {guess}?" if guess else ""
        raise UsageError(f"calls of cell {profile.cell} do not execute '{function}'", hint=hint)
    return "\n".join(line for symbol in found for line in (symbol.placed_title, *_lines(profile, symbol), ""))


def _lines(profile: CellProfile, symbol: SymbolProfile) -> Iterator[str]:
    rows: Sequence[tuple[str, str, str, str]] = [
        (
            number(float(Fraction(one.executed, profile.calls))),
            f"+{one.offset:#x}",
            one.code,
            relocated.text,
        )
        for one, relocated in zip(symbol.instructions, CodeOfProfile(profile).relocated(symbol), strict=True)
    ]
    counts, offsets, codes = (max(len(row[column]) for row in rows) for column in range(3))
    for count, offset, code, text in rows:
        yield f"{count:>{counts}}  {offset:<{offsets}}  {code:<{codes}}  {text}"
