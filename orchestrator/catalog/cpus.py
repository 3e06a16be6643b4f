# SPDX-License-Identifier: GPL-2.0-only
"""The CPU models of guests: their QEMU options, and their caches and TLBs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from orchestrator.catalog.data import CatalogEntry, named, read


class CpuIdentity(CatalogEntry):
    """The fields of a guest's ``/proc/cpuinfo``."""

    vendor_id: str
    cpu_family: int
    model: int
    stepping: int
    model_name: str


class CpuModel(CatalogEntry):
    """A guest's CPU: ``qemu`` is the value of ``-cpu``, ``family`` CPUID's, limited to 6 as in the boot stub."""

    name: str
    title: str
    qemu: str
    pae: bool
    long_mode: bool
    family: int = 6
    identity: CpuIdentity | None


@lru_cache(maxsize=1)
def cpus() -> Mapping[str, CpuModel]:
    """The catalogue's CPU models by name."""
    return named(CpuModel, read("cpus.yaml")["cpus"])


@lru_cache(maxsize=64)
def qemu_cpu(name: str) -> CpuModel:
    """QEMU's own model ``name``. The caller checks that the host's QEMU has it."""
    lacking = read("cpus.yaml")["qemu_models_without"]
    family = re.sub(r"-v[0-9]+$", "", name)  # "qemu32-v1" is a version of "qemu32"
    pae, long_mode = (family not in lacking[feature] for feature in ("pae", "long_mode"))
    fields = {"pae": pae, "long_mode": long_mode, "family": lacking["family_6"].get(family, 6), "identity": None}
    return CpuModel(name=name, title=f"QEMU's {name}", qemu=name, **fields)


def cpu(name: str) -> CpuModel:
    """The catalogue's CPU model ``name``, else QEMU's."""
    return cpus().get(name) or qemu_cpu(name)


CacheName = Literal["l1i", "l1d", "l2", "itlb", "dtlb"]
"""Names of caches in the catalogue and in the plugin's arguments."""

Positive = Annotated[int, Field(ge=1)]


class CacheGeometry(CatalogEntry):
    """A set-associative cache: its size in bytes, lines per set, and bytes per line."""

    size: Positive
    ways: Positive
    line: Positive
    source: str

    @model_validator(mode="after")
    def _is_made_of_sets(self) -> Self:
        if self.line & (self.line - 1) or self.size % (self.ways * self.line):
            raise ValueError(f"{self.size} bytes do not divide into sets of {self.ways} lines of {self.line} bytes")
        return self


class Tlb(CatalogEntry):
    """A set-associative translation lookaside buffer for pages of ``page`` bytes."""

    entries: Positive
    ways: Positive
    page: Positive
    source: str

    @property
    def as_cache(self) -> CacheGeometry:
        return CacheGeometry(size=self.entries * self.page, ways=self.ways, line=self.page, source=self.source)


class CpuCaches(CatalogEntry):
    """A CPU's first-level caches, its unified second level, and the TLBs whose misses are page walks."""

    name: str
    core: str
    l1i: CacheGeometry
    l1d: CacheGeometry
    l2: CacheGeometry
    itlb: Tlb
    dtlb: Tlb

    @property
    def all(self) -> Mapping[CacheName, CacheGeometry]:
        return {"l1i": self.l1i, "l1d": self.l1d, "l2": self.l2, "itlb": self.itlb.as_cache, "dtlb": self.dtlb.as_cache}


@lru_cache(maxsize=1)
def cpu_caches() -> Mapping[str, CpuCaches]:
    """The caches by CPU model, of the catalogue's models only."""
    return named(CpuCaches, read("cpu_caches.yaml")["cpu_caches"])
