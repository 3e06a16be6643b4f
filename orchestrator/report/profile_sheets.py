# SPDX-License-Identifier: GPL-2.0-only
"""Profiles, and differences between two of them, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from orchestrator.report.grid import Grid, Row
from orchestrator.report.profile_figures import mark, others, per_call, share, signed
from orchestrator.report.sheet import Sheet
from orchestrator.results.profile import CellProfile, SymbolProfile
from orchestrator.results.profile_difference import (
    FunctionDifference,
    InstructionDifference,
    ProfileDifference,
    SymbolDifference,
)

_ItemT = TypeVar("_ItemT")

USER = "user space"
_NAMED = 5
"""Names in a sentence."""


def profile_sheet(profile: CellProfile, classes: Mapping[str, Fraction], limit: int | None = None) -> Sheet:
    """A cell's instructions per call by symbol, and by class where there are ``classes``.

    Symbols behind the first ``limit`` share a row.
    """
    unit, all_repetitions = profile.unit, profile.repetitions

    def row(name: str, executed: int, repetitions: int, style: str = "") -> Row:
        figures = [per_call(Fraction(executed, profile.calls)), share(executed, profile.executed)]
        repeated = per_call(Fraction(repetitions, profile.calls) if repetitions else None)
        return Row(name, [*figures, repeated] if all_repetitions else figures, style)

    listed, rest = _split(profile.symbols, limit)
    symbols = [row(symbol_title(one), one.executed, one.repetitions) for one in listed]
    if rest:
        symbols.append(row(others(len(rest)), sum(one.executed for one in rest), sum(one.repetitions for one in rest)))
    sums = [row("all", profile.executed, all_repetitions, "bold")]
    sentences = ["Inlined functions count for the function that they are in."]
    headings = [f"per {unit}", "share"]
    if all_repetitions:
        headings.append("repetitions")
        sums.append(row("without repetitions", profile.executed - all_repetitions, 0))
        sentences.append(
            "Each repetition of a string instruction (rep) counts as an instruction, as on the clock; a CPU's counter "
            "counts the whole as one."
        )
    by_class = [Row(name, [per_call(one), *[""] * (len(headings) - 1)]) for name, one in classes.items()]
    of = f"one {unit}" if profile.calls == 1 else f"mean of {profile.calls} {unit}s"
    return Sheet(
        title=profile.cell,
        facts=[f"instructions per {unit}, {of}; each was counted by QEMU"],
        grid=Grid(headings, [block for block in (symbols, sums, by_class) if block], together=len(headings)),
        sentences=sentences,
        footnotes=[],
        proofs=[],
    )


def difference_sheet(difference: ProfileDifference, limit: int | None = None) -> Sheet:
    """The symbols that differ, the largest change first; those behind the first ``limit`` share a row."""
    before, after = difference.totals
    listed, rest = _split(difference.symbols, limit)
    rows = [_symbol_row(one) for one in listed]
    if rest:
        sides = [sum((side or Fraction(0) for side in sides), start=Fraction(0)) for sides in _sides(rest)]
        figures = [*map(per_call, sides), signed(sides[1] - sides[0])]
        rows.append(Row(others(len(rest)), [*figures, ""]))
    sums = Row("all", [per_call(before), per_call(after), signed(after - before), ""], "bold")
    return Sheet(
        title=difference_title(difference),
        facts=["instructions per call", *difference.notes],
        grid=Grid(["before", "after", "change", ""], [block for block in (rows, [sums]) if block], together=4),
        sentences=list(_equal(difference)),
        footnotes=[],
        proofs=[],
    )


def function_sheet(difference: ProfileDifference, function: FunctionDifference) -> Sheet:
    """The instructions of a function that differ, in their order."""
    symbol = function.symbol
    rows = [_instruction_row(one) for one in function.instructions]
    sums = Row("all", ["", per_call(symbol.before), per_call(symbol.after), signed(symbol.change), ""], "bold")
    headings = ["at", "before", "after", "change", ""]
    same = "1 instruction is" if function.equal == 1 else f"{function.equal} instructions are"
    return Sheet(
        title=f"{symbol.title}: {difference_title(difference)}",
        facts=["executions per call of each instruction", *difference.notes],
        grid=Grid(headings, [block for block in (rows, [sums]) if block], together=len(headings)),
        sentences=[f"{same} equal in both."],
        footnotes=[],
        proofs=[],
    )


def difference_title(difference: ProfileDifference) -> str:
    """Which cells were compared."""
    return f"{difference.before.cell} -> {difference.after.cell}"


def _symbol_row(one: SymbolDifference) -> Row:
    figures = [per_call(one.before), per_call(one.after), signed(one.change)]
    return Row(one.title, [*figures, mark(one.before, one.after)])


def _instruction_row(one: InstructionDifference) -> Row:
    offset = one.before_offset if one.after_offset is None else one.after_offset
    figures = [per_call(one.before), per_call(one.after), signed(one.change), mark(one.before, one.after)]
    return Row(one.text, [f"+{offset or 0:#x}", *figures])


def _sides(symbols: Sequence[SymbolDifference]) -> Iterable[Iterable[Fraction | None]]:
    return (one.before for one in symbols), (one.after for one in symbols)


def _equal(difference: ProfileDifference) -> Iterable[str]:
    same = "1 symbol is" if difference.equal == 1 else f"{difference.equal} symbols are"
    yield f"{same} equal in both."
    other = difference.other_code
    if other:
        named = ", ".join([*other[:_NAMED], *([f"{len(other) - _NAMED} more"] if len(other) > _NAMED else [])])
        what = "1 executes" if len(other) == 1 else f"{len(other)} execute"
        yield f"{what} as many instructions in both, but not the same ones: {named}."


def _split(items: Sequence[_ItemT], limit: int | None) -> tuple[Sequence[_ItemT], Sequence[_ItemT]]:
    """Those that are listed, and the rest; a rest of one is listed as well."""
    if limit is None or len(items) <= limit + 1:
        return items, []
    return items[:limit], items[limit:]


def symbol_title(symbol: SymbolProfile) -> str:
    """A symbol as it is printed."""
    return f"{symbol.name} ({USER})" if symbol.place == "user" else symbol.placed_title
