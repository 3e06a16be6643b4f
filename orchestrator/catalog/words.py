# SPDX-License-Identifier: GPL-2.0-only
"""Words of experiments and results: system calls, errors, handlers, clocks, parts of a profile, purposes."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from pydantic import Field

from orchestrator.arch import Arch
from orchestrator.catalog.data import Fact, named, read


class SystemCall(Fact):
    """A system call's numbers; None where an architecture lacks it."""

    name: str
    i386: int | None = None
    x86_64: int | None = None

    def number(self, arch: Arch, entry: str) -> int | None:
        return self.x86_64 if arch == "x86_64" and entry != "int80" else self.i386


@lru_cache(maxsize=1)
def system_calls() -> Mapping[str, SystemCall]:
    """Return the system calls by name."""
    return named(SystemCall, read("system_calls.yaml"))


# The errors that a system call may return, by their names.
#
# Python's table of a Linux host: i386 and x86_64 have the numbers of include/uapi/asm-generic/errno.h.

LARGEST = 4095
"""MAX_ERRNO of include/linux/err.h: a result from -4095 to -1 is an error, and any other a success."""


@lru_cache(maxsize=1)
def error_numbers() -> Mapping[str, int]:
    """Return the errors' numbers, above 0, by their names; a number may have several."""
    return {name: number for name, number in vars(errno).items() if isinstance(number, int)}


def error_name(number: int) -> str:
    """Return the kernel's name of the error ``number``; ``errno 4000`` for one without a name."""
    names = {**errno.errorcode, errno.EDEADLK: "EDEADLK", errno.EOPNOTSUPP: "EOPNOTSUPP"}  # not their second names
    return names.get(number, f"errno {number}")


def vocabulary() -> Mapping[str, Mapping[str, str]]:
    """The handlers and the clocks, with what each means, in one line."""
    return {kind: dict(words) for kind, words in read("vocabulary.yaml").items()}


ProfilePart = Literal["symbols", "classes", "stacks", "caches", "purposes"]
"""Instructions by symbol; by class, for which QEMU also counts loads, stores and taken branches; by call stack; what
misses in models of the CPU's caches; what instructions are for."""


OTHER = "other"
"""What no purpose claims, the probed calls themselves among it."""


class Purpose(Fact):
    """Patterns of functions in the kernel and modules, and the mechanisms whose ``generated`` code is for it."""

    name: str
    title: str
    source: str
    kernel: list[str] = Field(default_factory=list)
    modules: dict[str, list[str]] = Field(default_factory=dict)
    generated: list[str] = Field(default_factory=list)

    def has(self, function: str, module: str | None) -> bool:
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
