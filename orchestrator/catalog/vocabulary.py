# SPDX-License-Identifier: GPL-2.0-only
"""The meaning of an experiment's words without a catalogue of their own: handlers and clocks."""

from __future__ import annotations

from functools import lru_cache

from orchestrator.catalog.data import Fact, read


class Vocabulary(Fact):
    """Words with what each means, in one line."""

    handlers: dict[str, str]
    clocks: dict[str, str]


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """Return the words."""
    return Vocabulary.model_validate(read("vocabulary.yaml"))
