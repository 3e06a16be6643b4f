# SPDX-License-Identifier: GPL-2.0-only
"""Which entries of the cache are removed? Those unused for some time, unless another one needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from stat import S_ISDIR

from orchestrator.artifacts.cache_entries import CacheEntry, Kind, status

ALL = inf
"""A time after which nothing was used: all that is not in use may go."""


@dataclass(frozen=True)
class Fate:
    """An entry and the reason why it stays; it is removed where there is none."""

    entry: CacheEntry
    stays: str = ""


def fates(found: Sequence[CacheEntry], unused_since: float, kinds: Iterable[Kind]) -> list[Fate]:
    """Decide on the entries of ``kinds`` that were not used since then (epoch seconds, or ``ALL``).

    What a staying artifact was made from stays as well, unless it is ``ALL`` that are to go.
    """
    wanted = frozenset(kinds)
    staying = [entry for entry in found if entry.kind not in wanted or entry.used > unused_since]
    needed_by = {} if unused_since == ALL else _needs(found, staying)
    old = (entry for entry in found if entry.kind in wanted and entry.used <= unused_since)
    return [Fate(entry, _need(entry, needed_by)) for entry in old]


@dataclass(frozen=True)
class Removal:
    """An entry that was to be removed, what it takes on disk in bytes, and whether it is gone: one in use stays."""

    entry: CacheEntry
    size: int
    is_done: bool


def remove(leaving: Sequence[CacheEntry], unused_since: float) -> list[Removal]:
    """Remove entries, unless one is in use or was used since then."""
    sizes = freed(leaving)
    return [Removal(entry, size, entry.remove(unused_since)) for entry, size in zip(leaving, sizes, strict=True)]


def freed(leaving: Iterable[CacheEntry]) -> list[int]:
    """The bytes on disk that each of these entries frees when they are removed in this order."""
    links: Counter[tuple[int, int]] = Counter()
    return [_weight(entry, links) for entry in leaving]


def _weight(entry: CacheEntry, links: Counter[tuple[int, int]]) -> int:
    weight = 0
    for path in entry.files():
        facts = status(path)
        if facts is None:
            continue
        if facts.st_nlink > 1 and not S_ISDIR(facts.st_mode):
            # Patched kernel sources share their files with the plain one: the last to go frees them.
            links[facts.st_dev, facts.st_ino] += 1
            if links[facts.st_dev, facts.st_ino] < facts.st_nlink:
                continue
        weight += facts.st_blocks * 512
    return weight


def _need(entry: CacheEntry, needed_by: dict[str, CacheEntry]) -> str:
    if entry.artifact is None or entry.artifact.key not in needed_by:
        return ""
    by = needed_by[entry.artifact.key]
    return f"needed by {by.kind} {by.label}"


def _needs(found: Iterable[CacheEntry], staying: Iterable[CacheEntry]) -> dict[str, CacheEntry]:
    """Keys of what the staying artifacts were made from, and of what that was made from, each with one that needs it.

    An artifact's inputs hold the keys of the artifacts that went into it.
    """
    by_key = {entry.artifact.key: entry for entry in found if entry.artifact is not None}
    needed_by: dict[str, CacheEntry] = {}
    left = list(staying)
    while left:
        entry = left.pop()
        for word in _words(entry.artifact.inputs) if entry.artifact is not None else ():
            if word in by_key and word not in needed_by:
                needed_by[word] = entry
                left.append(by_key[word])
    return needed_by


def _words(value: object) -> Iterator[str]:
    """All the strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _words(part)
