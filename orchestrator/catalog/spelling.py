# SPDX-License-Identifier: GPL-2.0-only
"""Suggestions for misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice most similar to ``word``, ignoring case, or None when none is similar."""
    by_folded = {choice.casefold(): choice for choice in choices}
    # Matching is quadratic in the word's length, and all names are much shorter than this limit.
    close = difflib.get_close_matches(word[:100].casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def choices_sentence(word: str, choices: Iterable[str]) -> str:
    """Return ``allowed: a, b; did you mean 'b'?`` for a word that is not one of ``choices``."""
    allowed = list(choices)
    sentence = f"allowed: {', '.join(allowed)}"
    guess = nearest(word, allowed)
    return f"{sentence}; did you mean '{guess}'?" if guess else sentence


def unknown(kind: str, word: str, choices: Iterable[str]) -> str:
    """Return the sentence ``unknown <kind> 'word'; allowed: ...; did you mean '...'?``."""
    return f"unknown {kind} '{word}'; {choices_sentence(word, choices)}"
