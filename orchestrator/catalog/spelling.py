# SPDX-License-Identifier: GPL-2.0-only
"""Suggestions for misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHORTEST_PART = 3
"""Characters of a word that is looked for inside other names: fewer are in most of them."""

_MOST = 40
"""Choices that a sentence lists; there are more kernels. Of more it lists so many:"""
_SHOWN = 12


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that ``word`` most likely means, ignoring case, or None when none is similar.

    A word that a choice begins with, or has in it, is an abbreviation; of several such choices the shortest is meant.
    Any other word is taken for a misspelling.
    """
    by_folded = {choice.casefold(): choice for choice in choices}
    # Matching is quadratic in the word's length, and all names are much shorter than this limit.
    folded = word[:100].casefold()
    if len(folded) >= _SHORTEST_PART and folded not in by_folded:
        for fits in (str.startswith, str.__contains__):
            longer = [name for name in by_folded if fits(name, folded)]
            if longer:
                return by_folded[min(longer, key=len)]
    close = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def choices_sentence(word: str, choices: Iterable[str]) -> str:
    """Return ``allowed: a, b; did you mean 'b'?`` for a word that is not one of ``choices``; of many the first ones."""
    allowed = list(choices)
    more = f", and {len(allowed) - _SHOWN} more" if len(allowed) > _MOST else ""
    sentence = f"allowed: {', '.join(allowed[:_SHOWN] if more else allowed)}{more}"
    guess = nearest(word, allowed)
    return f"{sentence}; did you mean '{guess}'?" if guess else sentence


def unknown(kind: str, word: str, choices: Iterable[str]) -> str:
    """Return the sentence ``unknown <kind> 'word'; allowed: ...; did you mean '...'?``."""
    return f"unknown {kind} '{word}'; {choices_sentence(word, choices)}"
