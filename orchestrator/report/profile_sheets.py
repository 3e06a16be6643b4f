# SPDX-License-Identifier: GPL-2.0-only
"""Profiles, and differences between two of them, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from orchestrator.catalog.cpus import CacheName
from orchestrator.plain_text import shown
from orchestrator.report.sheet import NOTHING, Grid, Row, Sheet, number
from orchestrator.results.stored_profile import (
    ZERO,
    CacheProfile,
    CallChange,
    CallCost,
    CellProfile,
    FunctionDifference,
    InstructionDifference,
    Misses,
    ProfileDifference,
    SymbolDifference,
    SymbolProfile,
)

# The figures of profiles and of differences, as their tables and pictures print them.


def per_call(value: Fraction | None) -> str:
    """Instructions per call; a dash for none."""
    return NOTHING if value is None else number(float(value))


def signed(value: Fraction) -> str:
    """A change, with its sign."""
    return f"+{per_call(value)}" if value > 0 else per_call(value)


def share(part: Fraction | int, whole: Fraction | int) -> str:
    """A part of the whole in percent; a dash where there is nothing."""
    return f"{100 * float(part) / float(whole):.1f} %" if whole else NOTHING


def mark(before: object | None, after: object | None) -> str:
    """What is said of something that only one side has."""
    return "new" if before is None else "gone" if after is None else ""


def others(count: int) -> str:
    """The label of the row that stands for the rest."""
    return "1 other" if count == 1 else f"{count} others"


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
        what = "1 executes" if len(other) == 1 else f"{len(other)} execute"
        named = ", ".join(shown(other, _NAMED, "{} more"))
        yield f"{what} as many instructions in both, but not the same ones: {named}."


def _split(items: Sequence[_ItemT], limit: int | None) -> tuple[Sequence[_ItemT], Sequence[_ItemT]]:
    """Those that are listed, and the rest; a rest of one is listed as well."""
    if limit is None or len(items) <= limit + 1:
        return items, []
    return items[:limit], items[limit:]


def symbol_title(symbol: SymbolProfile) -> str:
    """A symbol as it is printed."""
    return f"{symbol.name} ({USER})" if symbol.place == "user" else symbol.placed_title


# Trees of calls with their inclusive cost, and what differs between two, as tables: a row for each call.


@dataclass(frozen=True)
class Cut:
    """What of a tree is printed: calls up to ``depth`` below the program, with ``percent`` of the whole or more."""

    depth: int
    percent: float

    def least(self, whole: Fraction) -> Fraction:
        return Fraction(self.percent) / 100 * abs(whole)

    def sentence(self, whole: str) -> str:
        return f"Others: less than {self.percent:g} % of {whole} each. Calls more than {self.depth} deep are left out."


def tree_sheet(tree: CallCost, cut: Cut) -> Sheet:
    """The calls of a profile; of each caller's the largest comes first."""
    return Sheet(
        title=tree.name,
        facts=["instructions per call: of a function with all that it calls, and its own"],
        grid=Grid(["with calls", "own", "share"], [list(_costs(tree, tree, cut, 0))], together=3),
        sentences=[cut.sentence("all instructions")],
    )


def _costs(caller: CallCost, tree: CallCost, cut: Cut, depth: int) -> Iterator[Row]:
    shown, rest = _parted(caller.called, [abs(one.total) for one in caller.called], cut.least(tree.total))
    for one in sorted(shown, key=lambda one: (-one.total, one.name)):
        yield _cost(one, tree, depth)
        if depth < cut.depth:
            yield from _costs(one, tree, cut, depth + 1)
    if len(rest) == 1:
        yield _cost(rest[0], tree, depth)
    elif rest:
        total = sum((one.total for one in rest), start=ZERO)
        yield Row(others(len(rest)), [per_call(total), "", share(total, tree.total)], depth=depth)


def _cost(call: CallCost, tree: CallCost, depth: int) -> Row:
    return Row(call.name, [per_call(call.total), per_call(call.own), share(call.total, tree.total)], depth=depth)


def tree_difference_sheet(difference: ProfileDifference, tree: CallChange, cut: Cut) -> Sheet:
    """The calls that differ; of each caller's the largest change comes first."""
    before, after = tree.totals
    rows = list(_changes(tree, tree, cut, 0))
    sums = Row("all", [per_call(before), per_call(after), signed(tree.change), "", ""], "bold")
    what = "instructions per call: of a function with all that it calls; own: the change of its own"
    return Sheet(
        title=difference_title(difference),
        facts=[what, *difference.notes],
        grid=Grid(["before", "after", "change", "own", ""], [block for block in (rows, [sums]) if block], together=5),
        sentences=[cut.sentence("all changes")],
    )


def _changes(caller: CallChange, tree: CallChange, cut: Cut, depth: int) -> Iterator[Row]:
    shown, rest = _parted(caller.called, [one.moved for one in caller.called], cut.least(tree.moved))
    for one in sorted(shown, key=lambda one: (-abs(one.change), -one.moved, one.name)):
        yield _change(one, depth)
        if depth < cut.depth:
            yield from _changes(one, tree, cut, depth + 1)
    if len(rest) == 1:
        yield _change(rest[0], depth)
    elif rest:
        before, after = (sum((one.totals[side] for one in rest), start=ZERO) for side in (0, 1))
        figures = [per_call(before), per_call(after), signed(after - before), "", ""]
        yield Row(others(len(rest)), figures, depth=depth)


def _change(call: CallChange, depth: int) -> Row:
    before, after = (None if side is None else side.total for side in (call.before, call.after))
    figures = [per_call(before), per_call(after), signed(call.change), signed(call.own_change)]
    return Row(call.name, [*figures, mark(call.before, call.after)], depth=depth)


_Call = TypeVar("_Call", CallCost, CallChange)


def _parted(calls: Sequence[_Call], weights: Sequence[Fraction], least: Fraction) -> tuple[list[_Call], list[_Call]]:
    """The calls of at least this weight, and the rest; what weighs nothing is of the rest."""
    shown: list[_Call] = []
    rest: list[_Call] = []
    for one, weight in zip(calls, weights, strict=True):
        (shown if weight and weight >= least else rest).append(one)
    return shown, rest


# What a cell's calls miss in models of caches, by symbol, as tables.

TITLES: dict[CacheName, str] = {"l1i": "L1I", "l1d": "L1D", "l2": "L2", "itlb": "ITLB", "dtlb": "DTLB"}
_KIB = 1024


def cache_sheets(profile: CellProfile) -> Sequence[Sheet]:
    """The misses per call of each symbol that has any, and its share; no sheet where no caches were modelled."""
    if not profile.caches:
        return []
    symbols = [one for one in profile.symbols if any(one.missed)]
    symbols.sort(key=lambda one: -sum(one.missed))
    rows = [Row(symbol_title(one), [*_cells(profile, one.missed)]) for one in symbols]
    sums = [Row("all", [*_cells(profile, profile.missed)], "bold")]
    accesses = [Row("accesses", [cell for one in profile.caches for cell in (_per_call(profile, one.accesses), "")])]
    headings = [heading for one in profile.caches for heading in (f"{TITLES[one.name]} misses", "share")]
    return [
        Sheet(
            title=f"{profile.cell}: caches",
            facts=[f"misses per call, mean of {profile.calls} calls", ", ".join(map(_geometry, profile.caches))],
            grid=Grid(headings, [block for block in (rows, sums, accesses) if block], together=2),
            sentences=[
                "Models with LRU, without prefetching: no measurement of a processor.",
                *_repeated(profile),
            ],
        )
    ]


def _cells(profile: CellProfile, missed: Misses) -> Iterator[str]:
    for one in profile.caches:
        count = missed.of(one.name)
        yield _per_call(profile, count)
        yield share(count, one.misses) if count else NOTHING


def _geometry(cache: CacheProfile) -> str:
    if cache.name.endswith("tlb"):
        return f"{TITLES[cache.name]} {cache.size // cache.line} pages, {cache.ways} ways"
    return f"{TITLES[cache.name]} {cache.size // _KIB} KiB, {cache.ways} ways of {cache.line} bytes"


def _per_call(profile: CellProfile, count: int) -> str:
    return per_call(Fraction(count, profile.calls))


def _repeated(profile: CellProfile) -> Iterator[str]:
    differing = [one for one in profile.caches if one.repeated != one.misses]
    if not differing:
        yield "As many calls again missed equally often."
    for one in differing:
        yield f"As many calls again missed {_per_call(profile, one.repeated)} times a call in {TITLES[one.name]}."
