# SPDX-License-Identifier: GPL-2.0-only
"""What the functions that a probe executes are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from pydantic import Field

from orchestrator.catalog.data import Fact, named, read

OTHER = "other"
"""What no purpose claims, the probed calls themselves among it."""


class Purpose(Fact):
    """A purpose: patterns of the names of its functions, in the kernel and in modules by their names.

    ``generated`` is the mechanisms whose generated code is for it.
    """

    name: str
    title: str
    source: str
    kernel: list[str] = Field(default_factory=list)
    modules: dict[str, list[str]] = Field(default_factory=dict)
    generated: list[str] = Field(default_factory=list)

    def has(self, function: str, module: str | None) -> bool:
        """Whether a function of the kernel, or of a module, is for it."""
        if module is None:
            return _matches(function, self.kernel)
        return any(fnmatchcase(module, one) and _matches(function, names) for one, names in self.modules.items())


@lru_cache(maxsize=1)
def purposes() -> Mapping[str, Purpose]:
    """The purposes by name, in the order in which they are printed; the first that has a function gets it."""
    return named(Purpose, read("purposes.yaml"))


def purpose_of_function(function: str, module: str | None) -> str:
    """What a function is for; ``module`` is None for the kernel's own."""
    return next((one.name for one in purposes().values() if one.has(function, module)), OTHER)


def purpose_of_generated(mechanism: str) -> str:
    """What code is for that was made while the guest ran, with a probe of this mechanism."""
    return next((one.name for one in purposes().values() if mechanism in one.generated), OTHER)


def purpose_title(name: str) -> str:
    """The purpose's name as it is printed; that of an unknown one, of another version, as it is."""
    known = purposes().get(name)
    return name if known is None else known.title


def in_order(names: Sequence[str]) -> Sequence[str]:
    """Purposes in the order in which they are printed, what is unknown at the end."""
    known = [*purposes()]
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))


def _matches(function: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(function, pattern) for pattern in patterns)
