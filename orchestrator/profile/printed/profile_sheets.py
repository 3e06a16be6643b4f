# SPDX-License-Identifier: GPL-2.0-only
"""Profiles, trees of calls, cache misses, and differences of profiles as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from orchestrator.catalog.cpus import CacheName
from orchestrator.plain_text import counted, shown
from orchestrator.profile.stored.call_tree import CallCost
from orchestrator.profile.stored.cell_profile import ZERO, CacheProfile, CellProfile, Misses, SymbolProfile
from orchestrator.profile.stored.profile_difference import FunctionDifference, ProfileDifference
from orchestrator.report.sheet import COUNTED, NOTHING, Grid, Row, Sheet, number, signed_figure


def per_call(value: Fraction | None) -> str:
    """Instructions per call; a dash for none."""
    return NOTHING if value is None else number(float(value))


def share(part: Fraction | int, whole: Fraction | int) -> str:
    """A part of the whole in percent; a dash if the whole is 0."""
    return f"{100 * float(part) / float(whole):.1f} %" if whole else NOTHING


def change_figures(before: Fraction | None, after: Fraction | None) -> list[str]:
    """Both figures, the change, and ``new`` or ``gone`` for a figure that only one profile has."""
    change = signed_figure(float((after or ZERO) - (before or ZERO)), COUNTED)
    return [per_call(before), per_call(after), change, "new" if before is None else "gone" if after is None else ""]


def others(count: int) -> str:
    """The label of the row for the rest."""
    return "1 other" if count == 1 else f"{count} others"


_ItemT = TypeVar("_ItemT")

USER = "user space"
_NAMED = 5
"""The most names in a sentence."""


INLINED = "An inlined function counts towards its caller."


def profile_sheet(
    profile: CellProfile, classes: Mapping[str, Fraction], limit: int | None = None, inlined: str = INLINED
) -> Sheet:
    """A cell's instructions per call by symbol, and by ``classes``, if any.

    Symbols after the first ``limit`` share a row.
    """
    unit, all_repetitions = profile.unit, profile.repetitions

    def row(name: str, executed: int, repetitions: int, style: str = "") -> Row:
        figures = [per_call(profile.per_call(executed)), share(executed, profile.executed)]
        repeated = per_call(profile.per_call(repetitions) if repetitions else None)
        return Row(name, [*figures, repeated] if all_repetitions else figures, style)

    listed, rest = first_and_rest(profile.symbols, limit)
    symbols = [
        row(_symbol_title(symbol_profile), symbol_profile.executed, symbol_profile.repetitions)
        for symbol_profile in listed
    ]
    if rest:
        symbols.append(
            row(
                others(len(rest)),
                sum(symbol_profile.executed for symbol_profile in rest),
                sum(symbol_profile.repetitions for symbol_profile in rest),
            )
        )
    sums = [row("all", profile.executed, all_repetitions, "bold")]
    sentences = [inlined]
    headings = [f"per {unit}", "share"]
    if all_repetitions:
        headings.append("repetitions")
        sums.append(row("without repetitions", profile.executed - all_repetitions, 0))
        sentences.append(
            "Each repetition of a string instruction (rep) counts as an instruction, as on the clock; a CPU's counter "
            "counts the instruction once."
        )
    by_class = [Row(name, [per_call(executed), *[""] * (len(headings) - 1)]) for name, executed in classes.items()]
    of = f"one {unit}" if profile.calls == 1 else f"mean of {profile.calls} {unit}s"
    return Sheet(
        title=profile.cell,
        facts=[f"instructions per {unit}, {of}; QEMU counted each one"],
        grid=Grid(headings, [block for block in (symbols, sums, by_class) if block], together=len(headings)),
        sentences=sentences,
    )


def difference_sheet(difference: ProfileDifference, limit: int | None = None) -> Sheet:
    """The symbols that differ, the largest change first; those after the first ``limit`` share a row."""
    before, after = difference.totals
    listed, rest = first_and_rest(difference.symbols, limit)
    rows = [
        Row(symbol_difference.title, change_figures(symbol_difference.before, symbol_difference.after))
        for symbol_difference in listed
    ]
    if rest:
        sums_before = sum((symbol_difference.before or ZERO for symbol_difference in rest), start=ZERO)
        sums_after = sum((symbol_difference.after or ZERO for symbol_difference in rest), start=ZERO)
        rows.append(Row(others(len(rest)), change_figures(sums_before, sums_after)))
    sums = Row("all", change_figures(before, after), "bold")
    return Sheet(
        title=_title_of(difference),
        facts=["instructions per call", *difference.notes],
        grid=Grid(["before", "after", "change", ""], [block for block in (rows, [sums]) if block], together=4),
        sentences=list(_equal(difference)),
    )


def function_sheet(difference: ProfileDifference, function: FunctionDifference) -> Sheet:
    """The instructions of a function that differ, in order."""
    symbol = function.symbol
    rows = []
    for instruction in function.instructions:
        offset = instruction.before_offset if instruction.after_offset is None else instruction.after_offset
        rows.append(
            Row(instruction.text, [f"+{offset or 0:#x}", *change_figures(instruction.before, instruction.after)])
        )
    sums = Row("all", ["", *change_figures(symbol.before, symbol.after)[:-1], ""], "bold")
    headings = ["at", "before", "after", "change", ""]
    same = "1 instruction is" if function.equal == 1 else f"{function.equal} instructions are"
    return Sheet(
        title=f"{symbol.title}: {_title_of(difference)}",
        facts=["executions per call of each instruction", *difference.notes],
        grid=Grid(headings, [block for block in (rows, [sums]) if block], together=len(headings)),
        sentences=[f"{same} equal in both."],
    )


def _title_of(difference: ProfileDifference) -> str:
    return f"{difference.before.cell} -> {difference.after.cell}"


def _equal(difference: ProfileDifference) -> Iterable[str]:
    yield f"{counted(difference.equal, difference.noun)} {'is' if difference.equal == 1 else 'are'} equal in both."
    differing = difference.other_code
    if differing:
        what = "1 executes" if len(differing) == 1 else f"{len(differing)} execute"
        named = ", ".join(shown(differing, _NAMED, "{} more"))
        yield f"{what} as many instructions in both, but different ones: {named}."


def first_and_rest(items: Sequence[_ItemT], limit: int | None) -> tuple[Sequence[_ItemT], Sequence[_ItemT]]:
    """The first ``limit`` items and the rest; a rest of one is listed, too."""
    if limit is None or len(items) <= limit + 1:
        return items, []
    return items[:limit], items[limit:]


def _symbol_title(symbol: SymbolProfile) -> str:
    return f"{symbol.name} ({USER})" if symbol.place == "user" else symbol.placed_title


@dataclass(frozen=True)
class TreeLimits:
    """Limits of a printed tree: calls up to ``depth`` levels deep, with at least ``percent`` of the whole."""

    depth: int
    percent: float


def tree_sheet(tree: CallCost, cut: TreeLimits) -> Sheet:
    """A profile's tree of calls; each caller's calls are sorted by size, and the small ones share a row."""
    least = Fraction(cut.percent) / 100 * abs(tree.total)

    def is_heavy(cost: CallCost) -> bool:
        return cost.total != 0 and abs(cost.total) >= least

    def row(name: str, calls: Sequence[CallCost], depth: int) -> Row:
        total = sum((call.total for call in calls), start=ZERO)
        own_cost = per_call(calls[0].own) if len(calls) == 1 else ""
        return Row(name, [per_call(total), own_cost, share(total, tree.total)], depth=depth)

    def below(caller: CallCost, depth: int) -> Iterator[Row]:
        light = [call_cost for call_cost in caller.called if not is_heavy(call_cost)]
        for cost in sorted(filter(is_heavy, caller.called), key=lambda call_cost: (-call_cost.total, call_cost.name)):
            yield row(cost.name, [cost], depth)
            if depth < cut.depth:
                yield from below(cost, depth + 1)
        if light:
            yield row(light[0].name if len(light) == 1 else others(len(light)), light, depth)

    return Sheet(
        title=tree.name,
        facts=["instructions per call: of a function with its calls, and without them"],
        grid=Grid(["with calls", "own", "share"], [list(below(tree, 0))], together=3),
        sentences=[
            f"Others: less than {cut.percent:g} % of all instructions each. "
            f"Calls deeper than {cut.depth} levels are left out."
        ],
    )


TITLES: dict[CacheName, str] = {"l1i": "L1I", "l1d": "L1D", "l2": "L2", "itlb": "ITLB", "dtlb": "DTLB"}


def cache_sheets(profile: CellProfile) -> Sequence[Sheet]:
    """The misses per call of each symbol with misses, and its share; no sheet without modelled caches."""
    if not profile.caches:
        return []
    symbols = [symbol for symbol in profile.symbols if any(symbol.missed)]
    symbols.sort(key=lambda symbol: -sum(symbol.missed))
    rows = [Row(_symbol_title(symbol), [*_cells(profile, symbol.missed)]) for symbol in symbols]
    sums = [Row("all", [*_cells(profile, profile.missed)], "bold")]
    accesses = [
        Row("accesses", [cell for c in profile.caches for cell in (per_call(profile.per_call(c.accesses)), "")])
    ]
    differing = [
        f"A second pass missed {per_call(profile.per_call(cache.repeated))} times per call in {TITLES[cache.name]}."
        for cache in profile.caches
        if cache.repeated != cache.misses
    ]
    headings = [heading for cache in profile.caches for heading in (f"{TITLES[cache.name]} misses", "share")]
    return [
        Sheet(
            title=f"{profile.cell}: caches",
            facts=[f"misses per call, mean of {profile.calls} calls", ", ".join(map(_geometry, profile.caches))],
            grid=Grid(headings, [block for block in (rows, sums, accesses) if block], together=2),
            sentences=[
                "Models with LRU and without prefetching, not measurements of a processor.",
                *(differing or ["A second pass had equally many misses."]),
            ],
        )
    ]


def _cells(profile: CellProfile, missed: Misses) -> Iterator[str]:
    for cache in profile.caches:
        count = missed.of(cache.name)
        yield per_call(profile.per_call(count))
        yield share(count, cache.misses) if count else NOTHING


def _geometry(cache: CacheProfile) -> str:
    if cache.name.endswith("tlb"):
        return f"{TITLES[cache.name]} {cache.size // cache.line} pages, {cache.ways} ways"
    return f"{TITLES[cache.name]} {cache.size // 1024} KiB, {cache.ways} ways of {cache.line} bytes"
