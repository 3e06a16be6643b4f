# SPDX-License-Identifier: GPL-2.0-only
"""Vocabulary of experiments and results: handlers, clocks, and the parts of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from orchestrator.catalog.data import read


def vocabulary() -> Mapping[str, Mapping[str, str]]:
    """One-line explanations of the handlers and the clocks."""
    return {kind: dict(words) for kind, words in read("vocabulary.yaml").items()}


ProfilePartWanted = Literal["symbols", "classes", "stacks", "caches", "purposes"]
"""Parts of a profile that an experiment asks for: instructions by symbol; by class, with loads, stores and taken
branches; by call stack; misses in models of the CPU's caches; instructions by purpose."""
ProfilePart = Literal[ProfilePartWanted, "system-calls", "order"]
"""These; what whole programs always have: instructions by system call; and the order in a call, for its time line."""
