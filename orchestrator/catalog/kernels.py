# SPDX-License-Identifier: GPL-2.0-only
"""The kernels a guest can run, where they come from, and what they ask of the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from pydantic import Field

from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.data import Fact, named, read

Arch = Literal["i386", "x86_64"]


class DebianPackages(Fact):
    """The packages that always depend on Debian's newest kernel of a flavour, and on its headers."""

    image: str
    headers: str


class KernelSpec(Fact):
    """A kernel: Debian's, by its ``packages``, or one built from the ``source`` package, configured by ``fragments``.

    ``entry_offset`` is in bytes from a function's symbol to its first instruction after the ftrace nop.
    """

    name: str
    title: str
    arch: Arch
    packages: DebianPackages | None = None
    source: str | None = None
    fragments: list[str] = Field(default_factory=list)
    needs_pae: bool = False
    entry_offset: int

    @property
    def needs_long_mode(self) -> bool:
        """Whether it is a 64-bit kernel."""
        return self.arch == "x86_64"

    @property
    def origin(self) -> str:
        """Where it comes from, for people."""
        return self.packages.image if self.packages is not None else f"built from {self.source}"

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
