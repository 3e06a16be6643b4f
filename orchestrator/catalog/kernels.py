# SPDX-License-Identifier: GPL-2.0-only
"""The kernels a guest can run, where they come from, and what they ask of the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.data import Fact, named, read

Arch = Literal["i386", "x86_64"]


class KernelSpec(Fact):
    """A kernel by its Debian packages.

    ``entry_offset`` is in bytes from a function's symbol to its first instruction after the ftrace nop,
    ``ticks_per_second`` the frequency of the timer interrupt.
    """

    name: str
    title: str
    arch: Arch
    image_package: str
    headers_package: str
    needs_pae: bool
    needs_long_mode: bool
    ticks_per_second: int
    entry_offset: int

    def objection(self, cpu: CpuModel) -> str | None:
        """Return the sentence that says why this kernel cannot boot on ``cpu``, or None when it can."""
        if self.needs_long_mode and not cpu.long_mode:
            return f"kernel '{self.name}' is 64-bit and CPU '{cpu.name}' is 32-bit"
        if self.needs_pae and not cpu.pae:
            return f"kernel '{self.name}' needs PAE and CPU '{cpu.name}' has none"
        return None


@lru_cache(maxsize=1)
def kernels() -> Mapping[str, KernelSpec]:
    """Return the kernels by name."""
    return named(KernelSpec, read("kernels.yaml"))
