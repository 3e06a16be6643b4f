# SPDX-License-Identifier: GPL-2.0-only
"""Profiles, trees of calls, cache misses, and differences of profiles as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from orchestrator.catalog.cpus import CacheName
from orchestrator.plain_text import counted, shown
from orchestrator.profile.stored.call_tree import CallCost
from orchestrator.profile.stored.cell_profile import ZERO, CacheProfile, CellProfile, Misses, SymbolProfile
from orchestrator.profile.stored.profile_difference import FunctionDifference, InstructionDifference, ProfileDifference
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import COUNTED, NOTHING, number, signed_figure
from orchestrator.report.grid import Row
from orchestrator.report.sheet import Sheet


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


CHANGES: Columns[tuple[Fraction | None, Fraction | None]] = Columns(
    [
        Column("before", lambda both: change_figures(*both)[0]),
        Column("after", lambda both: change_figures(*both)[1]),
        Column("change", lambda both: change_figures(*both)[2]),
        Column("", lambda both: change_figures(*both)[3]),
    ],
    together=4,
)
"""The figures of both sides of a difference."""


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
    columns = _profile_columns(profile)
    listed, rest = first_and_rest(profile.symbols, limit)
    symbols = [columns.row(_symbol_title(symbol), (symbol.executed, symbol.repetitions)) for symbol in listed]
    if rest:
        together = sum(symbol.executed for symbol in rest), sum(symbol.repetitions for symbol in rest)
        symbols.append(columns.row(others(len(rest)), together))
    sums = [columns.row("all", (profile.executed, all_repetitions), "bold")]
    sentences = [inlined]
    if all_repetitions:
        sums.append(columns.row("without repetitions", (profile.executed - all_repetitions, 0)))
        sentences.append(
            "Each repetition of a string instruction (rep) counts as an instruction, as on the clock; a CPU's counter "
            "counts the instruction once."
        )
    by_class = [columns.texts(name, [per_call(executed)]) for name, executed in classes.items()]
    of = f"one {unit}" if profile.calls == 1 else f"mean of {profile.calls} {unit}s"
    return Sheet(
        title=profile.cell,
        facts=[f"instructions per {unit}, {of}; QEMU counted each one"],
        grid=columns.grid(symbols, sums, by_class),
        sentences=sentences,
    )


def _profile_columns(profile: CellProfile) -> Columns[tuple[int, int]]:
    """Columns of executed instructions and the repetitions among them, the latter where the profile has any."""

    def repetitions(counts: tuple[int, int]) -> str:
        return per_call(profile.per_call(counts[1]) if counts[1] else None)

    return Columns(
        [
            Column(f"per {profile.unit}", lambda counts: per_call(profile.per_call(counts[0]))),
            Column("share", lambda counts: share(counts[0], profile.executed)),
            *([Column("repetitions", repetitions)] if profile.repetitions else []),
        ],
        together=3,
    )


def difference_sheet(difference: ProfileDifference, limit: int | None = None) -> Sheet:
    """The symbols that differ, the largest change first; those after the first ``limit`` share a row."""
    before, after = difference.totals
    listed, rest = first_and_rest(difference.symbols, limit)
    rows = [CHANGES.row(symbol.title, (symbol.before, symbol.after)) for symbol in listed]
    if rest:
        sums_before = sum((symbol_difference.before or ZERO for symbol_difference in rest), start=ZERO)
        sums_after = sum((symbol_difference.after or ZERO for symbol_difference in rest), start=ZERO)
        rows.append(CHANGES.row(others(len(rest)), (sums_before, sums_after)))
    return Sheet(
        title=_title_of(difference),
        facts=["instructions per call", *difference.notes],
        grid=CHANGES.grid(rows, [CHANGES.row("all", (before, after), "bold")]),
        sentences=list(_equal(difference)),
    )


def function_sheet(difference: ProfileDifference, function: FunctionDifference) -> Sheet:
    """The instructions of a function that differ, in order."""
    symbol = function.symbol
    rows = [_AT_OFFSETS.row(instruction.text, instruction) for instruction in function.instructions]
    sums = _AT_OFFSETS.texts("all", ["", *change_figures(symbol.before, symbol.after)[:-1]], "bold")
    same = "1 instruction is" if function.equal == 1 else f"{function.equal} instructions are"
    return Sheet(
        title=f"{symbol.title}: {_title_of(difference)}",
        facts=["executions per call of each instruction", *difference.notes],
        grid=_AT_OFFSETS.grid(rows, [sums]),
        sentences=[f"{same} equal in both."],
    )


def _offset(instruction: InstructionDifference) -> str:
    offset = instruction.before_offset if instruction.after_offset is None else instruction.after_offset
    return f"+{offset or 0:#x}"


def _change(place: int) -> Callable[[InstructionDifference], str]:
    return lambda instruction: change_figures(instruction.before, instruction.after)[place]


_AT_OFFSETS: Columns[InstructionDifference] = Columns(
    [
        Column("at", _offset),
        *(Column(heading, _change(place)) for place, heading in enumerate(CHANGES.headings)),
    ],
    together=5,
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

    def total(calls: Sequence[CallCost]) -> Fraction:
        return sum((call.total for call in calls), start=ZERO)

    columns: Columns[Sequence[CallCost]] = Columns(
        [
            Column("with calls", lambda calls: per_call(total(calls))),
            Column("own", lambda calls: per_call(calls[0].own) if len(calls) == 1 else ""),
            Column("share", lambda calls: share(total(calls), tree.total)),
        ],
        together=3,
    )

    def below(caller: CallCost, depth: int) -> Iterator[Row]:
        light = [call_cost for call_cost in caller.called if not is_heavy(call_cost)]
        for cost in sorted(filter(is_heavy, caller.called), key=lambda call_cost: (-call_cost.total, call_cost.name)):
            yield columns.row(cost.name, [cost], depth=depth)
            if depth < cut.depth:
                yield from below(cost, depth + 1)
        if light:
            yield columns.row(light[0].name if len(light) == 1 else others(len(light)), light, depth=depth)

    return Sheet(
        title=tree.name,
        facts=["instructions per call: of a function with its calls, and without them"],
        grid=columns.grid(below(tree, 0)),
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
    columns = Columns(_cache_columns(profile), together=2)
    accesses = [text for cache in profile.caches for text in (per_call(profile.per_call(cache.accesses)), "")]
    differing = [
        f"A second pass missed {per_call(profile.per_call(cache.repeated))} times per call in {TITLES[cache.name]}."
        for cache in profile.caches
        if cache.repeated != cache.misses
    ]
    return [
        Sheet(
            title=f"{profile.cell}: caches",
            facts=[f"misses per call, mean of {profile.calls} calls", ", ".join(map(_geometry, profile.caches))],
            grid=columns.grid(
                (columns.row(_symbol_title(symbol), symbol.missed) for symbol in symbols),
                [columns.row("all", profile.missed, "bold")],
                [columns.texts("accesses", accesses)],
            ),
            sentences=[
                "Models with LRU and without prefetching, not measurements of a processor.",
                *(differing or ["A second pass had equally many misses."]),
            ],
        )
    ]


def _cache_columns(profile: CellProfile) -> Iterator[Column[Misses]]:
    def count(cache: CacheProfile) -> Callable[[Misses], str]:
        return lambda missed: per_call(profile.per_call(missed.of(cache.name)))

    def share_of(cache: CacheProfile) -> Callable[[Misses], str]:
        return lambda missed: share(missed.of(cache.name), cache.misses) if missed.of(cache.name) else NOTHING

    for cache in profile.caches:
        yield Column(f"{TITLES[cache.name]} misses", count(cache))
        yield Column("share", share_of(cache))


def _geometry(cache: CacheProfile) -> str:
    if cache.name.endswith("tlb"):
        return f"{TITLES[cache.name]} {cache.size // cache.line} pages, {cache.ways} ways"
    return f"{TITLES[cache.name]} {cache.size // 1024} KiB, {cache.ways} ways of {cache.line} bytes"
