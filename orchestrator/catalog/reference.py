# SPDX-License-Identifier: GPL-2.0-only
"""The published measurements, and the documents' claims about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from statistics import fmean
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from orchestrator.catalog.data import CatalogEntry, read, unknown
from orchestrator.errors import ConfigError

Layout = Literal["list", "mail"]
"""``list``: a column per probe, a row per sample. ``mail``: a row per probe, and several tables side by side."""


class ReferenceTable(CatalogEntry):
    """A published table: ``samples`` or ``overheads`` by column, in ``unit``, and the machine measured.

    ``id`` is ``document/table``; ``cpu`` names the catalogue's model in place of ``processor``; ``figure`` is the
    caption of the document's chart. ``int3_per_hit``, ``size_ratio`` (to a plain kprobe) and ``extra_bytes`` are
    further figures of the document, by column.
    """

    id: str
    title: str
    figure: str
    document: str
    unit: str
    layout: Layout
    cpu: str
    processor: str
    kernel: str
    handler: str
    samples: dict[str, list[float]] = Field(default={})
    published_overheads: dict[str, float] = Field(default={}, alias="overheads")
    int3_per_hit: dict[str, float] = Field(default={})
    size_ratio: dict[str, float] = Field(default={})
    extra_bytes: dict[str, int] = Field(default={})

    @model_validator(mode="after")
    def _samples_or_overheads(self) -> Self:
        if bool(self.samples) == bool(self.published_overheads):
            raise ValueError("a published table has either samples or overheads")
        return self

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    @property
    def document_id(self) -> str:
        return self.id.rpartition("/")[0]

    @property
    def columns(self) -> Sequence[str]:
        return tuple(self.samples or self.published_overheads)

    def average(self, column: str) -> float | None:
        self._check(column)
        return fmean(self.samples[column]) if self.samples else None

    def overhead(self, column: str) -> float:
        self._check(column)
        if self.published_overheads:
            return self.published_overheads[column]
        return fmean(self.samples[column]) - fmean(self.samples["baseline"])

    def _check(self, column: str) -> None:
        if column not in self.columns:
            raise ConfigError(unknown(f"column of {self.id}", column, self.columns))


@lru_cache(maxsize=1)
def reference_tables() -> Mapping[str, ReferenceTable]:
    """The published tables by id, such as ``djprobe-2005/list5``."""
    tables: dict[str, ReferenceTable] = {}
    names = (entry.name for entry in files(__package__).joinpath("reference").iterdir())
    for name in sorted(name for name in names if name.endswith(".yaml")):
        content = read(f"reference/{name}")
        for table, fields in content.pop("tables").items():
            table_id = f"{name.removesuffix('.yaml')}/{table}"
            tables[table_id] = ReferenceTable.model_validate({"id": table_id, **content, **fields})
    return MappingProxyType(tables)


def reference_table(table_id: str) -> ReferenceTable:
    """A published table by id. Raises ConfigError, which names the nearest id, for an unknown one."""
    table = reference_tables().get(table_id)
    if table is None:
        raise ConfigError(unknown("reference table", table_id, reference_tables()))
    return table


ClaimClock = Literal["instructions", "wall", "modelled"]
"""The clocks of claims. The modelled clock is used for ratios only."""


class _Claim(CatalogEntry):
    """A claim of a document about its ``tables``; ``why`` explains by clock why it does not hold."""

    id: str
    document: str
    tables: list[str]
    sentence: str
    why: dict[ClaimClock, str]


class RatioClaim(_Claim):
    """The ratio of the overhead of each probe in ``of`` to that of ``to``; None is no bound."""

    kind: Literal["ratio"]
    of: list[str]
    to: str
    at_least: float | None = None
    at_most: float | None = None


class TrapsClaim(_Claim):
    """Breakpoint traps per hit; ``single_step`` are those of a single step, which took none at publication."""

    kind: Literal["traps"]
    int3_per_hit: dict[str, int]
    single_step: int


class SizeClaim(_Claim):
    """The ratio of a probe's memory to that of an unoptimised probe."""

    kind: Literal["size"]
    of: str
    at_least: float
    at_most: float


class MechanismClaim(_Claim):
    """The mechanism at a probe's point, and its breakpoint traps per hit."""

    kind: Literal["mechanism"]
    probe: str
    mechanism: str
    int3_per_hit: int


Claim = RatioClaim | TrapsClaim | SizeClaim | MechanismClaim


@lru_cache(maxsize=1)
def claims() -> Mapping[str, Claim]:
    """The claims by id, in the documents' order."""
    model: TypeAdapter[Claim] = TypeAdapter(Annotated[Claim, Field(discriminator="kind")])
    entries = read("claims.yaml")
    return MappingProxyType({name: model.validate_python({"id": name, **fields}) for name, fields in entries.items()})
