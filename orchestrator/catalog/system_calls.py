# SPDX-License-Identifier: GPL-2.0-only
"""System calls by name, with their numbers on each architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from orchestrator.arch import Arch
from orchestrator.catalog.data import CatalogEntry, named
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
