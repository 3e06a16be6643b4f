# SPDX-License-Identifier: GPL-2.0-only
"""A bisection's end, as a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from orchestrator.report.figures import number
from orchestrator.report.grid import Grid, Row
from orchestrator.report.sheet import Sheet
from orchestrator.results.bisected import Commit, Found, Tried

_LONGEST = 60


def bisection_sheet(found: Found) -> Sheet:
    """The first bad commit, or those among which it is, and all that were tried in the order of trying."""
    good, bad = (one.measured.value for one in found.tried[:2] if one.measured is not None)
    sure = len(found.candidates) == 1
    title = f"First bad commit: {_named(found.candidates[0])}" if sure else "The first bad commit is one of these"
    facts = [f"{one.author}, {one.date}" if sure else _named(one) for one in found.candidates]
    rows = [
        _row(one, "good" if at == 0 else "bad" if at == 1 else "", (good, bad)) for at, one in enumerate(found.tried)
    ]
    sentences = [f"A commit is bad from {number((good + bad) / 2)} on, halfway between both ends."]
    sentences += [f"{one.commit.short} was skipped: {one.why_skipped}" for one in found.skipped]
    return Sheet(title, facts, Grid(["cost", "end"], [rows], together=2), sentences, [], [])


def bisection_json(found: Found) -> dict[str, Any]:
    """The same for programs."""
    return {
        "candidates": [asdict(one) for one in found.candidates],
        "tried": [
            {
                "commit": asdict(one.commit),
                "value": None if one.measured is None else one.measured.value,
                "why_skipped": one.why_skipped or None,
            }
            for one in found.tried
        ],
    }


def _row(one: Tried, end: str | None, ends: tuple[float, float]) -> Row:
    cost = "skipped" if one.measured is None else number(one.measured.value)
    is_bad = one.measured is not None and abs(one.measured.value - ends[1]) <= abs(one.measured.value - ends[0])
    judged = "skip" if one.measured is None else "bad" if is_bad else "good"
    return Row(_named(one.commit)[:_LONGEST], [cost, f"{end} end" if end else judged])


def _named(commit: Commit) -> str:
    return f"{commit.short} {commit.subject}"
