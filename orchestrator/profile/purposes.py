# SPDX-License-Identifier: GPL-2.0-only
"""What the instructions of a profile are for: trap entry and exit, lookup, handler, and so on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from orchestrator.catalog.purposes import OTHER, purpose_of_function, purpose_of_generated
from orchestrator.results.profile import CellProfile, SymbolProfile


def by_purpose(profile: CellProfile, mechanism: str) -> Mapping[str, int]:
    """The instructions of all calls by purpose, with a probe of this ``mechanism``; their sum is the profile's."""
    sums: Counter[str] = Counter()
    for symbol in profile.symbols:
        sums[_purpose(symbol, mechanism)] += symbol.executed
    return dict(sums)


def _purpose(symbol: SymbolProfile, mechanism: str) -> str:
    match symbol.place:
        case "user":
            return OTHER
        case "generated":
            return purpose_of_generated(mechanism)
        case _:
            return purpose_of_function(symbol.name, symbol.module)
