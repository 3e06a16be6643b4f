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


def annotated(profiles: Sequence[CellProfile], function: str) -> str:
    """Executed instructions of the functions of one name, below the id of each cell whose calls execute one.

    Raises UsageError where no cell's calls do.
    """
    texts = [_of_cell(one, function) for one in profiles]
    if not any(texts):
        guess = nearest(function, dict.fromkeys(symbol.name for one in profiles for symbol in one.symbols))
        hint = f"did you mean {guess}?" if guess else ""
        who = f"cell {profiles[0].cell} do not" if len(profiles) == 1 else f"none of the {len(profiles)} cells"
        raise UsageError(f"calls of {who} execute '{function}'", hint=hint)
    return "\n".join(text for text in texts if text)


def _of_cell(profile: CellProfile, function: str) -> str:
    found = [symbol for symbol in profile.symbols if function in (symbol.name, symbol.title)]
    lines = [line for symbol in found for line in (symbol.placed_title, *_lines(profile, symbol), "")]
    return "\n".join((profile.cell, *lines)) if lines else ""


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
    counts, offsets, codes = (max((len(row[column]) for row in rows), default=0) for column in range(3))
    for count, offset, code, text in rows:
        yield f"{count:>{counts}}  {offset:<{offsets}}  {code:<{codes}}  {text}"
