# SPDX-License-Identifier: GPL-2.0-only
"""The classes that instructions belong to by their names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from orchestrator.catalog.data import Fact, read


class InstructionClass(Fact):
    """A class, and the names of its instructions as Intel writes them."""

    name: str
    instructions: tuple[str, ...]


@lru_cache(maxsize=1)
def instruction_classes() -> Mapping[str, frozenset[str]]:
    """The names of instructions by class, in the order in which classes are printed."""
    found = {}
    for name, instructions in read("instruction_classes.yaml").items():
        if not isinstance(instructions, list):
            raise TypeError(f"class {name} is no list of instructions")
        found[name] = frozenset(InstructionClass(name=name, instructions=tuple(instructions)).instructions)
    return found
