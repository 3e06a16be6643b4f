# SPDX-License-Identifier: GPL-2.0-only
"""A cell's reason in the words of ``orchestrator cost``: its options instead of an experiment's keys."""

from __future__ import annotations

import re

_SAVED = "print the experiment (--print), save it, run it with"
_KEYS = (
    (re.compile(r"(?:set )?points: \[['\"]?(\.\.\.|[^]'\"]+)['\"]?\]"), lambda found: f"--point {_point(found[1])}"),
    (re.compile(r"set hits: (\d+)"), lambda found: f"name them by --workload FILE.c --hits {found[1]}"),
    (re.compile(r"set ((?:image|memory): \S+?)(?=[,;]|$)", re.MULTILINE), lambda found: f"{_SAVED} {found[1]}"),
    (re.compile(r"benchmark: (\{calls: \d+, repeats: \d+\})"), lambda found: f"{_SAVED} benchmark: {found[1]}"),
)


def _point(named: str) -> str:
    return "FUNCTION" if named == "..." else named


def in_options(reason: str) -> str:
    """The same reason, its hints at keys of an experiment as options; keys without an option name the experiment."""
    for key, option in _KEYS:
        reason = key.sub(option, reason)
    return reason
