# SPDX-License-Identifier: GPL-2.0-only
"""A cell's reason in the words of ``orchestrator cost``: its options instead of an experiment's keys."""

from __future__ import annotations

import re

_SAVED = "print the experiment (--print), save it, run it with"
_KEYS = (
    (re.compile(r"(?:set )?points: \[['\"]?(\.\.\.|[^]'\"]+)['\"]?\]"), lambda match: f"--point {_point(match[1])}"),
    (re.compile(r"set hits: (\d+)"), lambda match: f"name them by --workload FILE.c --hits {match[1]}"),
    (re.compile(r"set image: (\S+?)(?=[,;]|$)", re.MULTILINE), lambda match: f"--image {match[1]}"),
    (re.compile(r"set (memory: \S+?)(?=[,;]|$)", re.MULTILINE), lambda match: f"{_SAVED} {match[1]}"),
    (re.compile(r"benchmark: (\{calls: \d+, repeats: \d+\})"), lambda match: f"{_SAVED} benchmark: {match[1]}"),
)


def _point(named: str) -> str:
    return "FUNCTION" if named == "..." else named


def in_options(reason: str) -> str:
    """The same reason, its hints at keys of an experiment as options; keys without an option name the experiment."""
    for key, option in _KEYS:
        reason = key.sub(option, reason)
    return reason
