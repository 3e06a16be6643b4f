# SPDX-License-Identifier: GPL-2.0-only
"""The benchmarks that make calls, and the kernel function that each enters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from pydantic import Field

from orchestrator.catalog.data import Fact, named, read
from orchestrator.catalog.kernels import Arch

Entry = Literal["auto", "int80", "sysenter", "syscall"]

ENTRIES: dict[Arch, tuple[Entry, ...]] = {
    "i386": ("auto", "int80", "sysenter"),
    "x86_64": ("auto", "syscall", "int80"),
}
"""The system call entries that programs of an architecture have."""


class Buffer(Fact):
    """A system call's argument: the address of ``size`` zeroed bytes."""

    buffer: int


class BenchmarkSpec(Fact):
    """A benchmark: its ways into the kernel, the call it makes, and the probed symbol for each way.

    Without a ``call`` the experiment names it; without ``symbols`` the kernel's own dispatch decides.
    """

    name: str
    title: str
    entries: list[Entry]
    call: str | None = None
    arguments: list[int | Buffer] = Field(default_factory=list)
    symbols: dict[Arch, dict[Entry, str]] = Field(default_factory=dict)


@lru_cache(maxsize=1)
def benchmarks() -> Mapping[str, BenchmarkSpec]:
    """Return the benchmarks by name."""
    return named(BenchmarkSpec, read("benchmarks.yaml", __package__))
