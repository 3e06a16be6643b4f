# SPDX-License-Identifier: GPL-2.0-only
"""Vocabulary of experiments and results: system calls, errors, handlers, clocks, profile parts, purposes."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from pydantic import Field

from orchestrator.arch import Arch
from orchestrator.catalog.data import CatalogEntry, matches_any, named, read
from orchestrator.paths import data_dir


class SystemCall(CatalogEntry):
    """A system call's numbers; None on an architecture that lacks it."""

    name: str
    i386: int | None = None
    x86_64: int | None = None

    def number(self, arch: Arch, entry: str) -> int | None:
        return self.x86_64 if arch == "x86_64" and entry != "int80" else self.i386


@lru_cache(maxsize=1)
def system_calls() -> Mapping[str, SystemCall]:
    """The system calls by name, from the header that guest programs have them from."""
    of_i386, _, of_x86_64 = (data_dir("images") / "guest" / "system_calls.h").read_text().partition("#else")
    numbers: dict[str, dict[str, int]] = {}
    for arch, text in (("i386", of_i386), ("x86_64", of_x86_64)):
        for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.MULTILINE):
            numbers.setdefault(name, {})[arch] = int(number)
    return named(SystemCall, dict(sorted(numbers.items())))


# The errors of system calls by name, from Python's table: i386 and x86_64 both have the numbers of
# include/uapi/asm-generic/errno.h.

LARGEST = 4095
"""MAX_ERRNO of include/linux/err.h: a result from -4095 to -1 is an error."""


@lru_cache(maxsize=1)
def error_numbers() -> Mapping[str, int]:
    """Error numbers by name; a number may have several names."""
    return {name: number for name, number in vars(errno).items() if isinstance(number, int)}


def error_name(number: int) -> str:
    """The kernel's name of an error; ``errno 4000`` for one without a name."""
    names = {**errno.errorcode, errno.EDEADLK: "EDEADLK", errno.EOPNOTSUPP: "EOPNOTSUPP"}  # not their synonyms
    return names.get(number, f"errno {number}")


def vocabulary() -> Mapping[str, Mapping[str, str]]:
    """One-line explanations of the handlers and the clocks."""
    return {kind: dict(words) for kind, words in read("vocabulary.yaml").items()}


ProfilePartWanted = Literal["symbols", "classes", "stacks", "caches", "purposes"]
"""Parts of a profile that an experiment asks for: instructions by symbol; by class, with loads, stores and taken
branches; by call stack; misses in models of the CPU's caches; instructions by purpose."""
ProfilePart = Literal[ProfilePartWanted, "system-calls", "order"]
"""These; what whole programs always have: instructions by system call; and the order in a call, for its time line."""


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
        return any(fnmatchcase(module, one) and matches_any(function, names) for one, names in self.modules.items())


@lru_cache(maxsize=1)
def purposes() -> Mapping[str, Purpose]:
    """The purposes by name, in the order of printing; the first one that matches a function owns it."""
    return named(Purpose, read("purposes.yaml"))


def purpose_of_function(function: str, module: str | None) -> str:
    """The purpose of a function; ``module`` is None for the kernel's."""
    return next((one.name for one in purposes().values() if one.has(function, module)), OTHER)


def purpose_of_generated(mechanism: str) -> str:
    """The purpose of code that a probe of this mechanism generates at run time."""
    return next((one.name for one in purposes().values() if mechanism in one.generated), OTHER)


def purpose_title(name: str) -> str:
    """A purpose's title; for an unknown one, from another version, its name."""
    known = purposes().get(name)
    return name if known is None else known.title


def in_order(names: Sequence[str]) -> Sequence[str]:
    """Purposes in the order of printing, unknown ones last."""
    known = [*purposes()]
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))
