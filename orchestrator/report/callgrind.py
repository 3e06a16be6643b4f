# SPDX-License-Identifier: GPL-2.0-only
"""A profile in the format of valgrind's callgrind, for KCachegrind: counts by instruction, without a call graph.

The format is documented in valgrind's manual, "Callgrind Format Specification", version 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.results.misses import NO_MISSES
from orchestrator.results.profile import CellProfile, SymbolProfile

_MISSES = ("I1mr", "D1mr", "D1mw", "L2m", "ITLBm", "DTLBm")
"""Misses of fetches, loads and stores in level 1, as cachegrind names them; of all three in level 2; of the TLBs."""


def callgrind_text(profile: CellProfile) -> str:
    """All calls together. An object is the kernel, a module or the program; a module begins at its text."""
    return "".join(f"{line}\n" for line in _lines(profile))


def _lines(profile: CellProfile) -> Iterator[str]:
    details = ["Loads", "Stores", "Taken"] if profile.has_details else []
    events = ["Ir", *details, *(_MISSES if profile.caches else ())]
    yield "# callgrind format"
    yield "version: 1"
    yield "creator: orchestrator"
    yield f"cmd: {profile.cell} ({profile.calls} calls)"
    yield "positions: instr"
    yield f"events: {' '.join(events)}"
    lines = [(symbol, _counted(profile, symbol)) for symbol in profile.symbols]
    sums = [sum(values) for values in zip(*(counts for _, found in lines for _, counts in found), strict=True)]
    yield f"summary: {' '.join(map(str, sums))}"
    for symbol, found in lines:
        yield ""
        yield f"ob={symbol.module or symbol.place}"
        yield "fl=???"
        yield f"fn={symbol.name}"
        for offset, counts in found:
            yield f"{symbol.address + offset:#x} {' '.join(map(str, counts))}"


def _counted(profile: CellProfile, symbol: SymbolProfile) -> Sequence[tuple[int, tuple[int, ...]]]:
    """The counts of each instruction by its offset, in the order of the events."""
    missed = {(one.offset, one.code): one.misses for one in symbol.misses}
    return [
        (
            one.offset,
            (
                one.executed,
                *((one.loads, one.stores, one.taken) if profile.has_details else ()),
                *(missed.get((one.offset, one.code), NO_MISSES) if profile.caches else ()),
            ),
        )
        for one in symbol.instructions
    ]
