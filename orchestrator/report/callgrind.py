# SPDX-License-Identifier: GPL-2.0-only
"""A profile in the format of valgrind's callgrind, for KCachegrind: counts by instruction, without a call graph.

The format is documented in valgrind's manual, "Callgrind Format Specification", version 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.results.profile import CellProfile, Instruction


def callgrind_text(profile: CellProfile) -> str:
    """All calls together. An object is the kernel, a module or the program; a module begins at its text."""
    return "".join(f"{line}\n" for line in _lines(profile))


def _lines(profile: CellProfile) -> Iterator[str]:
    events = ["Ir", "Loads", "Stores", "Taken"] if profile.has_details else ["Ir"]
    yield "# callgrind format"
    yield "version: 1"
    yield "creator: orchestrator"
    yield f"cmd: {profile.cell} ({profile.calls} calls)"
    yield "positions: instr"
    yield f"events: {' '.join(events)}"
    width = len(events)
    sums = [sum(values) for values in zip(*(_counts(one, width) for one in profile.instructions), strict=True)]
    yield f"summary: {' '.join(map(str, sums))}"
    for symbol in profile.symbols:
        yield ""
        yield f"ob={symbol.module or symbol.place}"
        yield "fl=???"
        yield f"fn={symbol.name}"
        for one in symbol.instructions:
            yield f"{symbol.address + one.offset:#x} {' '.join(map(str, _counts(one, width)))}"


def _counts(one: Instruction, width: int) -> tuple[int, ...]:
    return (one.executed, one.loads, one.stores, one.taken)[:width]
