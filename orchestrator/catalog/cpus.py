# SPDX-License-Identifier: GPL-2.0-only
"""The CPU models a guest can have: how QEMU makes each, and their caches and TLBs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from orchestrator.catalog.data import Fact, named, read


class CpuIdentity(Fact):
    """What a guest's ``/proc/cpuinfo`` shows, field by field."""

    vendor_id: str
    cpu_family: int
    model: int
    stepping: int
    model_name: str


class CpuModel(Fact):
    """A guest's CPU: ``qemu`` is the value of ``-cpu``, ``family`` CPUID's, at most 6 as the boot stub sees it."""

    name: str
    title: str
    qemu: str
    pae: bool
    long_mode: bool
    family: int = 6
    identity: CpuIdentity | None


@lru_cache(maxsize=1)
def cpus() -> Mapping[str, CpuModel]:
    """Return the catalogue's CPU models by name."""
    return named(CpuModel, read("cpus.yaml")["cpus"])


@lru_cache(maxsize=64)
def qemu_cpu(name: str) -> CpuModel:
    """Return QEMU's own model ``name``. Whether the host's QEMU has it is for the caller to check."""
    lacking = read("cpus.yaml")["qemu_models_without"]
    family = re.sub(r"-v[0-9]+$", "", name)  # "qemu32-v1" is a version of "qemu32"
    pae, long_mode = (family not in lacking[feature] for feature in ("pae", "long_mode"))
    fields = {"pae": pae, "long_mode": long_mode, "family": lacking["family_6"].get(family, 6), "identity": None}
    return CpuModel(name=name, title=f"QEMU's {name}", qemu=name, **fields)


def cpu(name: str) -> CpuModel:
    """Return the catalogue's CPU model ``name``, else QEMU's own model of that name."""
    return cpus().get(name) or qemu_cpu(name)


CacheName = Literal["l1i", "l1d", "l2", "itlb", "dtlb"]
"""The caches of a CPU, as keys of the catalogue and arguments of the plugin."""

Positive = Annotated[int, Field(ge=1)]


class Cache(Fact):
    """A set-associative cache: its bytes, how many lines a set has, and the bytes of a line."""

    size: Positive
    ways: Positive
    line: Positive
    source: str

    @model_validator(mode="after")
    def _is_made_of_sets(self) -> Self:
        if self.line & (self.line - 1) or self.size % (self.ways * self.line):
            raise ValueError(f"{self.size} bytes are no sets of {self.ways} lines of {self.line} bytes")
        return self


class Tlb(Fact):
    """A set-associative translation lookaside buffer for pages of ``page`` bytes."""

    entries: Positive
    ways: Positive
    page: Positive
    source: str

    @property
    def as_cache(self) -> Cache:
        return Cache(size=self.entries * self.page, ways=self.ways, line=self.page, source=self.source)


class CpuCaches(Fact):
    """A CPU's first-level caches, its unified second level, and the TLBs whose misses are page walks."""

    name: str
    core: str
    l1i: Cache
    l1d: Cache
    l2: Cache
    itlb: Tlb
    dtlb: Tlb

    @property
    def all(self) -> Mapping[CacheName, Cache]:
        return {"l1i": self.l1i, "l1d": self.l1d, "l2": self.l2, "itlb": self.itlb.as_cache, "dtlb": self.dtlb.as_cache}


@lru_cache(maxsize=1)
def cpu_caches() -> Mapping[str, CpuCaches]:
    """The caches by the names of CPU models. QEMU's own models have none here."""
    return named(CpuCaches, read("cpu_caches.yaml")["cpu_caches"])
