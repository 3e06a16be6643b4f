# SPDX-License-Identifier: GPL-2.0-only
"""Profiles and differences for programs. Numbers are instructions per call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from orchestrator.results.misses import CacheProfile, Misses
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
                **({"misses": _misses(profile, one.missed)} if profile.caches else {}),
            }
            for one in profile.symbols
        ],
        "classes": {name: float(value) for name, value in classes.items()},
        **({"caches": [_cache(profile, one) for one in profile.caches]} if profile.caches else {}),
    }


def _misses(profile: CellProfile, missed: Misses) -> dict[str, float]:
    return {kind: float(Fraction(count, profile.calls)) for kind, count in missed._asdict().items()}


def _cache(profile: CellProfile, cache: CacheProfile) -> dict[str, Any]:
    counts = {"accesses": cache.accesses, "hits": cache.hits, "misses": cache.misses, "misses_again": cache.repeated}
    geometry = {"name": cache.name, "size": cache.size, "ways": cache.ways, "line": cache.line}
    return {**geometry, **{name: float(Fraction(count, profile.calls)) for name, count in counts.items()}}


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
