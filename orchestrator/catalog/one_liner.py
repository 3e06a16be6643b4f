# SPDX-License-Identifier: GPL-2.0-only
"""A bpftrace one-liner among the probes: ``bpftrace: kprobe:vfs_read { @[comm] = count(); }``."""

from __future__ import annotations

import hashlib
import re

from orchestrator.errors import ConfigError

PREFIX = "bpftrace:"
IMAGE = "debian-amd64-bpftrace"
"""The lab's image that has bpftrace."""

LONGEST = 500
"""Characters of a one-liner."""

_BY_CLOCK = re.compile(
    r"(?:^|[\s,])(interval|i|profile|p|software|s|hardware|h|watchpoint|w|asyncwatchpoint|aw):", re.ASCII
)
"""Probes of bpftrace that no call hits, with their short names (bpftrace's docs/reference_guide.md)."""
_COLUMN, _END = 60, 16
_SHOWN = 24
_DIGITS = 6


def is_one_liner(name: str) -> bool:
    """Whether a probe's name is a one-liner."""
    return name.startswith(PREFIX)


def may_be_one_liner(name: str) -> bool:
    """Whether an unknown probe's name looks like a one-liner whose prefix is missing or misspelt."""
    return name.casefold().startswith(PREFIX.removesuffix(":")) or (":" in name and "{" in name)


def one_liner(name: str) -> str:
    """The text that bpftrace gets. Raises ConfigError for one that is empty, too long or not of printable ASCII."""
    text = name.removeprefix(PREFIX).strip()
    if not text:
        raise ConfigError(
            f"found {name!r}; a one-liner has a probe and an action: '{PREFIX} kprobe:vfs_read {{ @ = count(); }}'"
        )
    if len(text) > LONGEST:
        raise ConfigError(f"found a one-liner of {len(text)} characters; at most {LONGEST} are allowed")
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(f"found {name[:80]!r}; a one-liner has printable ASCII characters in one line")
    by_clock = _BY_CLOCK.search(_outside_of_braces(text))
    if by_clock is not None:
        raise ConfigError(
            f"found '{by_clock[1]}:' in a one-liner; the clock or the CPU hits it, and not the calls: leave it out"
        )
    return text


def _outside_of_braces(text: str) -> str:
    """The probes and filters: the text without strings, and without what is in braces."""
    kept, depth = [], 0
    for part in re.findall(r'"(?:[^"\\]|\\.)*"|.', text):
        depth += {"{": 1, "}": -1}.get(part, 0)
        if depth == 0 and part[0] != '"':
            kept.append(" " if part == "}" else part)
    return "".join(kept)


def shortened(text: str) -> str:
    """The one-liner as a table's column shows it: its beginning, and its end."""
    line = f"{PREFIX} {text}"
    return line if len(line) <= _COLUMN else f"{line[: _COLUMN - _END - 5]} ... {line[-_END:]}"


def shown_name(text: str) -> str:
    """The one-liner's name in results, of characters that are safe in files' names and filters: its words, a digest."""
    words = "_".join(re.findall(r"[A-Za-z0-9_]+", text))[:_SHOWN].strip("_")
    return ".".join(filter(None, ["bpftrace", words, hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]]))
