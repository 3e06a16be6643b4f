# SPDX-License-Identifier: GPL-2.0-only
"""What a cell's calls miss in models of caches: its types, as a profile stores them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from orchestrator.catalog.cpu_caches import CacheName

_Count = Annotated[int, Field(ge=0, lt=2**63)]


class Misses(NamedTuple):
    """How often something was not in a cache: fetches, loads and stores in level 1, all of them in level 2, TLBs."""

    l1i: _Count = 0
    l1d_loads: _Count = 0
    l1d_stores: _Count = 0
    l2: _Count = 0
    itlb: _Count = 0
    dtlb: _Count = 0

    def of(self, cache: CacheName) -> int:
        """Those of one cache."""
        counts: dict[CacheName, int] = {
            "l1i": self.l1i,
            "l1d": self.l1d_loads + self.l1d_stores,
            "l2": self.l2,
            "itlb": self.itlb,
            "dtlb": self.dtlb,
        }
        return counts[cache]


NO_MISSES = Misses()


def sum_of(all_misses: Iterable[Misses]) -> Misses:
    """All of them together."""
    return Misses(*(sum(kind) for kind in zip(NO_MISSES, *all_misses, strict=True)))


class InstructionMisses(NamedTuple):
    """What an instruction, ``offset`` bytes behind its symbol, missed in all calls together."""

    offset: Annotated[int, Field(ge=0, lt=2**64)]
    code: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){1,15}$")]
    misses: Misses


class CacheProfile(BaseModel):
    """A cache that was modelled: bytes, lines of a set, bytes of a line; a TLB's lines are pages.

    ``accesses`` and ``misses`` are of all calls; ``repeated`` are the misses of as many calls again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: CacheName
    size: Annotated[int, Field(ge=1)]
    ways: Annotated[int, Field(ge=1)]
    line: Annotated[int, Field(ge=1)]
    accesses: _Count
    misses: _Count
    repeated: _Count

    @property
    def hits(self) -> int:
        """What was found in it."""
        return self.accesses - self.misses

    @model_validator(mode="after")
    def _misses_are_accesses(self) -> Self:
        if self.misses > self.accesses:
            raise ValueError(f"{self.name} missed {self.misses} of {self.accesses} accesses")
        return self
