# SPDX-License-Identifier: GPL-2.0-only
"""Which names of two kernels mean one function: a compiler adds ``.isra.0`` to a name in one build and not in another.

gcc and clang name what they split off a function, or specialise, after it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

_SUFFIXES = re.compile(r"(\.(isra|constprop|part|cold|lto_priv|localalias|llvm)(\.[0-9]+)*)+(?= \[|\+|$)")


def stem(title: str) -> str:
    """A function's name without what a compiler has added; its module, or its offset, stays."""
    return _SUFFIXES.sub("", title)


def paired(before: Iterable[str], after: Iterable[str]) -> Sequence[tuple[str | None, str | None]]:
    """Names of two sides, those of one function together, and None for what a side lacks.

    Equal names belong together. What is left does where a function has one clone on each side.
    """
    first, second = dict.fromkeys(before), dict.fromkeys(after)
    found: list[tuple[str | None, str | None]] = [(name, name) for name in first if name in second]
    left: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, (names, others) in enumerate([(first, second), (second, first)]):
        for name in names:
            if name not in others:
                left[stem(name)][side].append(name)
    for ours, theirs in left.values():
        if len(ours) == len(theirs) == 1:
            found.append((ours[0], theirs[0]))
        else:
            found += [(name, None) for name in ours]
            found += [(None, name) for name in theirs]
    return found
