# SPDX-License-Identifier: GPL-2.0-only
"""The caches and TLBs of the catalogue's CPUs, each with the document that has its geometry."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from orchestrator.catalog.data import Fact, named, read

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
        """The same as a cache whose lines are pages."""
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
        """All of them as caches, by name."""
        return {
            "l1i": self.l1i,
            "l1d": self.l1d,
            "l2": self.l2,
            "itlb": self.itlb.as_cache,
            "dtlb": self.dtlb.as_cache,
        }


@lru_cache(maxsize=1)
def cpu_caches() -> Mapping[str, CpuCaches]:
    """The caches by the names of CPU models. QEMU's own models have none here."""
    return named(CpuCaches, read("cpu_caches.yaml")["cpu_caches"])
