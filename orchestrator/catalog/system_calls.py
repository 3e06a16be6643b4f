# SPDX-License-Identifier: GPL-2.0-only
"""The system calls by name, with their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from orchestrator.catalog.data import Fact, named, read
from orchestrator.catalog.kernels import Arch


class SystemCall(Fact):
    """A system call's numbers; None where an architecture lacks it."""

    name: str
    i386: int | None = None
    x86_64: int | None = None

    def number(self, arch: Arch, entry: str) -> int | None:
        """Return its number on the way into a kernel of ``arch`` by ``entry``; None where there is none."""
        return self.x86_64 if arch == "x86_64" and entry != "int80" else self.i386


@lru_cache(maxsize=1)
def system_calls() -> Mapping[str, SystemCall]:
    """Return the system calls by name."""
    return named(SystemCall, read("system_calls.yaml"))
