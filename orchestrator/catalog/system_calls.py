# SPDX-License-Identifier: GPL-2.0-only
"""The system calls by name: their numbers, and the kernel function that each enters."""

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

    def symbol(self, arch: Arch) -> str:
        """Return the function that a call of the architecture's own enters, as a rule (arch/x86/include/asm).

        A few calls enter a function of another name: mmap's on i386 is mmap_pgoff's, for example.
        """
        return f"__{'x64' if arch == 'x86_64' else 'ia32'}_sys_{self.name}"


@lru_cache(maxsize=1)
def system_calls() -> Mapping[str, SystemCall]:
    """Return the system calls by name."""
    return named(SystemCall, read("system_calls.yaml"))
