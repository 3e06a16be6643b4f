# SPDX-License-Identifier: GPL-2.0-only
"""The purposes that a hit's instructions are summed by: trap, lookup, handler, single step and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from pydantic import Field

from orchestrator.catalog.data import CatalogEntry, matches_any, named, read

OTHER = "other"
"""Functions without a purpose, such as the probed calls themselves."""


class Purpose(CatalogEntry):
    """Patterns of functions in the kernel and in modules, and the mechanisms whose ``generated`` code it owns."""

    name: str
    title: str
    source: str
    kernel: list[str] = Field(default_factory=list)
    modules: dict[str, list[str]] = Field(default_factory=dict)
    generated: list[str] = Field(default_factory=list)

    def has(self, function: str, module: str | None) -> bool:
        if module is None:
            return matches_any(function, self.kernel)
        return any(
            fnmatchcase(module, pattern) and matches_any(function, names) for pattern, names in self.modules.items()
        )


@lru_cache(maxsize=1)
def purposes() -> Mapping[str, Purpose]:
    """The purposes by name, in the order of printing; the first one that matches a function owns it."""
    return named(Purpose, read("purposes.yaml"))


def purpose_of_function(function: str, module: str | None) -> str:
    """The purpose of a function; ``module`` is None for the kernel's."""
    return next((purpose.name for purpose in purposes().values() if purpose.has(function, module)), OTHER)


def purpose_of_generated(mechanism: str) -> str:
    """The purpose of code that a probe of this mechanism generates at run time."""
    return next((purpose.name for purpose in purposes().values() if mechanism in purpose.generated), OTHER)


def purpose_title(name: str) -> str:
    """A purpose's title; for an unknown one, from another version, its name."""
    known = purposes().get(name)
    return name if known is None else known.title


def in_order(names: Sequence[str]) -> Sequence[str]:
    """Purposes in the order of printing, unknown ones last."""
    known = [*purposes()]
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))
