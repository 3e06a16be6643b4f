# SPDX-License-Identifier: GPL-2.0-only
"""The documents' claims, as comparisons that can be computed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from orchestrator.catalog.data import Fact, read

ClaimClock = Literal["instructions", "wall", "modelled"]
"""The clocks that claims are judged on. Only ratios are judged on the modelled one."""


class _Claim(Fact):
    """A claim of a document about its ``tables``; ``why`` explains, by clock, why it does not hold."""

    id: str
    document: str
    tables: list[str]
    sentence: str
    why: dict[ClaimClock, str]


class RatioClaim(_Claim):
    """The ratio of the overhead of each probe in ``of`` to that of ``to``; a bound of None is no bound."""

    kind: Literal["ratio"]
    of: list[str]
    to: str
    at_least: float | None = None
    at_most: float | None = None


class TrapsClaim(_Claim):
    """Breakpoint traps a hit; ``single_step`` is those of a single step, which took none when it was published."""

    kind: Literal["traps"]
    int3_per_hit: dict[str, int]
    single_step: int


class SizeClaim(_Claim):
    """The ratio of a probe's memory to that of one that is not optimised."""

    kind: Literal["size"]
    of: str
    at_least: float
    at_most: float


class MechanismClaim(_Claim):
    """The mechanism at a probe's point, and its breakpoint traps a hit."""

    kind: Literal["mechanism"]
    probe: str
    mechanism: str
    int3_per_hit: int


Claim = RatioClaim | TrapsClaim | SizeClaim | MechanismClaim


@lru_cache(maxsize=1)
def claims() -> Mapping[str, Claim]:
    """Return every claim by id, in the documents' order."""
    model: TypeAdapter[Claim] = TypeAdapter(Annotated[Claim, Field(discriminator="kind")])
    entries = read("claims.yaml")
    found = {}
    for name, fields in entries.items():
        if not isinstance(fields, dict):
            raise TypeError(f"claim {name} is no mapping")
        found[name] = model.validate_python({"id": name, **fields})
    return MappingProxyType(found)
