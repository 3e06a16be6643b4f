# SPDX-License-Identifier: GPL-2.0-only
"""Profiles for KCachegrind: "Callgrind Format Specification", version 1.

A function's own instructions are exact by address. A call has what the callee and all that it calls execute, and,
for stacks do not say more, the caller's first address. As callgrind does without --separate-recs, each call of a
recursion counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from orchestrator.profile.stored.call_tree import CallCost, call_tree
from orchestrator.profile.stored.cell_profile import NO_MISSES, CellProfile, SymbolProfile, known_sum

_MISSES = ("I1mr", "D1mr", "D1mw", "L2m", "ITLBm", "DTLBm")
"""Misses of fetches, loads and stores in level 1, with cachegrind's names; of all in level 2; in the TLBs."""


_UNKNOWN = "desc: Calls: 1 where their number is not known"
"""callgrind_annotate takes 0 calls for none, and their instructions for the caller's own."""


def callgrind_text(profile: CellProfile) -> str:
    """The counts of all calls, and with stacks which function calls which.

    An object is the kernel, a module or the program; a module begins at its text.
    """
    details = ["Loads", "Stores", "Taken"] if profile.has_details else []
    events = ["Ir", *details, *(_MISSES if profile.caches else ())]
    counted = [(symbol, _counted(profile, symbol)) for symbol in profile.symbols]
    sums = [
        sum(values)
        for values in zip(*(counts for _, counts_of_symbol in counted for _, counts in counts_of_symbol), strict=True)
    ]
    lines = [
        "# callgrind format",
        "version: 1",
        "creator: orchestrator",
        f"cmd: {profile.cell} ({profile.calls} calls)",
        *([_UNKNOWN] if profile.stacks else []),
        "positions: instr",
        f"events: {' '.join(events)}",
        f"summary: {' '.join(map(str, sums))}",
        "fl=???",
    ]
    first = {symbol.title: symbol for symbol in reversed(profile.symbols)}
    edges = _edges(profile, first)
    for symbol, pairs in counted:
        lines += ["", *_function(first, symbol.title)]
        lines += [f"{symbol.address + offset:#x} {' '.join(map(str, counts))}" for offset, counts in pairs]
        lines += edges.pop(symbol.title, [])
    for caller, calls in edges.items():  # functions without instructions of their own
        lines += ["", *_function(first, caller), *calls]
    return "".join(f"{line}\n" for line in lines)


def _edges(profile: CellProfile, first: Mapping[str, SymbolProfile]) -> dict[str, list[str]]:
    """The lines of the calls of each function."""
    edges: dict[tuple[str, str], list[CallCost]] = defaultdict(list)

    def add(caller: CallCost) -> None:
        for cost in caller.called:
            edges[caller.name, cost.name].append(cost)
            add(cost)

    for program in call_tree(profile).called if profile.stacks else ():
        add(program)
    lines: dict[str, list[str]] = defaultdict(list)
    for (caller, callee), costs in edges.items():
        place, target = (first[title].address if title in first else 0 for title in (caller, callee))
        executed = int(sum(cost.total for cost in costs) * profile.calls)
        lines[caller] += [f"c{line}" for line in _function(first, callee)]
        lines[caller] += [
            f"calls={known_sum(cost.entered for cost in costs) or 1} {target:#x}",
            f"{place:#x} {executed}",
        ]
    return lines


def _function(symbols: Mapping[str, SymbolProfile], title: str) -> Sequence[str]:
    """The lines that name a function and its object."""
    name, _, module = title.removesuffix("]").partition(" [")
    return [f"ob={module or (symbols[title].place if title in symbols else 'kernel')}", f"fn={name}"]


def _counted(profile: CellProfile, symbol: SymbolProfile) -> Sequence[tuple[int, tuple[int, ...]]]:
    """The counts of each instruction by its offset, in the order of the events."""
    missed = {(misses.offset, misses.code): misses.misses for misses in symbol.misses}
    return [
        (
            instruction.offset,
            (
                instruction.executed,
                *((instruction.loads, instruction.stores, instruction.taken) if profile.has_details else ()),
                *(missed.get((instruction.offset, instruction.code), NO_MISSES) if profile.caches else ()),
            ),
        )
        for instruction in symbol.instructions
    ]
