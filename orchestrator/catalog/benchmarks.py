# SPDX-License-Identifier: GPL-2.0-only
"""The benchmarks, and the kernel function that each calls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import Fact, named, read
from orchestrator.catalog.kernels import Arch

Entry = Literal["auto", "int80", "sysenter", "syscall"]


class BenchmarkSpec(Fact):
    """A benchmark: the ways into the kernel it knows, and the probed symbol and the system call's number for each."""

    name: str
    title: str
    entries: list[Entry]
    symbols: dict[Arch, dict[Entry, str]]
    numbers: dict[Arch, dict[Entry, int]]


@lru_cache(maxsize=1)
def benchmarks() -> Mapping[str, BenchmarkSpec]:
    """Return the benchmarks by name."""
    return named(BenchmarkSpec, read("benchmarks.yaml"))
