# SPDX-License-Identifier: GPL-2.0-only
"""System calls by name, with their numbers on each architecture: ``images/guest/system_calls.tbl``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from orchestrator.arch import Arch
from orchestrator.catalog.data import CatalogEntry, named
from orchestrator.paths import data_file


class SystemCall(CatalogEntry):
    """A system call's numbers; None on an architecture that lacks it."""

    name: str
    i386: int | None = None
    x86_64: int | None = None

    def number(self, arch: Arch, entry: str) -> int | None:
        return self.x86_64 if arch == "x86_64" and entry != "int80" else self.i386


@lru_cache(maxsize=1)
def system_calls() -> Mapping[str, SystemCall]:
    """The system calls by name."""
    numbers: dict[str, dict[str, int]] = {}
    for line in data_file("images/guest/system_calls.tbl").read_text().splitlines():
        if not line.startswith("#"):
            i386, x86_64, name = line.split()
            numbers[name] = {arch: int(word) for arch, word in (("i386", i386), ("x86_64", x86_64)) if word != "-"}
    return named(SystemCall, dict(sorted(numbers.items())))
