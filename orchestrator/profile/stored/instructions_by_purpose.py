# SPDX-License-Identifier: GPL-2.0-only
"""A profile's instructions by what they are for, as in overhead breakdowns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from orchestrator.catalog.purposes import OTHER, purpose_of_function, purpose_of_generated
from orchestrator.profile.stored.cell_profile import CellProfile


def by_purpose(profile: CellProfile, mechanism: str) -> Mapping[str, int]:
    """The instructions of all calls by purpose, with a probe of this ``mechanism``; they add up to the profile's."""
    sums: Counter[str] = Counter()
    for symbol in profile.symbols:
        match symbol.place:
            case "user":
                purpose = OTHER
            case "generated":
                purpose = purpose_of_generated(mechanism)
            case _:
                purpose = purpose_of_function(symbol.name, symbol.module)
        sums[purpose] += symbol.executed
    return dict(sums)
