# SPDX-License-Identifier: GPL-2.0-only
"""Profiles and differences for programs. Numbers are instructions per call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from orchestrator.results.profile import CellProfile
from orchestrator.results.profile_difference import ProfileDifference


def profile_json(profile: CellProfile, classes: Mapping[str, Fraction]) -> dict[str, Any]:
    """A profile by symbol and class."""
    return {
        "cell": profile.cell,
        "calls": profile.calls,
        "instructions": float(Fraction(profile.executed, profile.calls)),
        "symbols": [
            {
                "name": one.name,
                "place": one.place,
                "module": one.module,
                "address": f"{one.address:#x}",
                "instructions": float(Fraction(one.executed, profile.calls)),
            }
            for one in profile.symbols
        ],
        "classes": {name: float(value) for name, value in classes.items()},
    }


def difference_json(difference: ProfileDifference) -> dict[str, Any]:
    """What differs by symbol; a number is null where the symbol executed nothing."""
    before, after = difference.totals
    return {
        "before": {"cell": difference.before.cell, "instructions": float(before)},
        "after": {"cell": difference.after.cell, "instructions": float(after)},
        "change": float(after - before),
        "equal": difference.equal,
        "symbols": [
            {
                "symbol": one.title,
                "before": None if one.before is None else float(one.before),
                "after": None if one.after is None else float(one.after),
                "change": float(one.change),
            }
            for one in difference.symbols
        ],
    }


def text(content: Sequence[Mapping[str, Any]]) -> str:
    """As JSON with a newline at the end."""
    return json.dumps(list(content), indent=2) + "\n"
