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


_PER_SECOND = {"M/s": 1e6, "k/s": 1e3, "calls in 10 s": 0.1}
"""Hits per second in each unit of published rates."""


class ReferenceTable(CatalogEntry):
    """A published table: ``samples``, ``overheads`` or ``rates`` by column, and the machine measured.

    ``id`` is ``document/table``; ``cpu`` names the catalogue's model in place of ``processor``, None if it has none;
    ``figure`` is the caption of the document's chart; ratios are to the column ``compared_with``. ``int3_per_hit``,
    ``size_ratio`` (to a plain kprobe) and ``extra_bytes`` are further figures of the document, by column.

    Figures are in ``unit``; cycles are of ``mhz``. Rates are as published, in ``rate_unit``, some with their deviation;
    the unit of their times is ns. The time of a hit is the inverse of its rate, less that of the empty loop, the column
    ``base``; where no base was published, it includes the loop.
    """

    id: str
    title: str
    figure: str
    document: str
    unit: str
    layout: Layout
    compared_with: str
    cpu: str | None = None
    mhz: float | None = None
    processor: str
    kernel: str
    handler: str
    conditions: str = ""
    source: str = ""
    samples: dict[str, list[float]] = Field(default={})
    published_overheads: dict[str, float] = Field(default={}, alias="overheads")
    rates: dict[str, float | Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(default={})
    rate_unit: str | None = None
    base: str | None = None
    int3_per_hit: dict[str, float] = Field(default={})
    size_ratio: dict[str, float] = Field(default={})
    extra_bytes: dict[str, int] = Field(default={})

    @model_validator(mode="after")
    def _one_kind_of_figures(self) -> Self:
        if sum(map(bool, (self.samples, self.published_overheads, self.rates))) != 1:
            raise ValueError("a published table has either samples, overheads or rates")
        if self.rates and (self.rate_unit not in _PER_SECOND or self.unit != "ns"):
            raise ValueError(f"rates are in {', '.join(_PER_SECOND)}, and their unit of time is ns")
        if any(self._rate(column) <= 0 for column in self.rates):
            raise ValueError("a rate is above zero")
        if self.base is not None and self.base not in self.rates:
            raise ValueError(f"there is no rate of the base, {self.base}")
        if self.unit == "cycles" and self.mhz is None:
            raise ValueError("cycles need mhz")
        return self

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    @property
    def document_id(self) -> str:
        return self.id.rpartition("/")[0]

    @property
    def columns(self) -> Sequence[str]:
        return tuple(self.samples or self.published_overheads or (rate for rate in self.rates if rate != self.base))

    def rate(self, column: str) -> str:
        """A published rate, with its deviation if there is one."""
        published = self.rates[column]
        decimals = 3 if self.rate_unit == "M/s" else 0
        return " ± ".join(
            f"{figure:.{decimals}f}" for figure in (published if isinstance(published, list) else [published])
        )

    def average(self, column: str) -> float | None:
        self._check(column)
        if self.rates:
            return self._time(column)
        return fmean(self.samples[column]) if self.samples else None

    def overhead(self, column: str) -> float:
        self._check(column)
        if self.published_overheads:
            return self.published_overheads[column]
        if self.rates:
            return self._time(column) - (0.0 if self.base is None else self._time(self.base))
        return fmean(self.samples[column]) - fmean(self.samples["baseline"])

    def nanoseconds(self, column: str) -> float:
        """The published overhead in nanoseconds."""
        return self.overhead(column) * {"ns": 1.0, "us": 1000.0, "cycles": 1000 / (self.mhz or 1000)}[self.unit]

    def _time(self, column: str) -> float:
        return 1e9 / (self._rate(column) * _PER_SECOND[self.rate_unit or ""])

    def _rate(self, column: str) -> float:
        rate = self.rates[column]
        return rate[0] if isinstance(rate, list) else rate

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
"""The clocks of claims. The modelled clock is used for ratios, orders and changes only."""

_BY = {"author": "", "table": "By the published figures alone: ", "lab": "Expected of the count: "}


class _Claim(CatalogEntry):
    """A claim about the ``tables`` of a document; ``why`` explains by clock why it does not hold.

    It is the author's, or follows from the published figures alone (``table``), or is what a count of instructions is
    expected to show (``lab``, with bounds around what the lab has counted). It is not judged on the clocks of
    ``undecided``, which has the reasons.
    """

    id: str
    document: str
    tables: list[str]
    by: Literal["author", "table", "lab"] = "author"
    sentence: str
    why: dict[ClaimClock, str] = Field(default={})
    undecided: dict[ClaimClock, str] = Field(default={})

    @property
    def statement(self) -> str:
        """The sentence, and whose it is if not the author's."""
        return f"{_BY[self.by]}{self.sentence}"


class RatioClaim(_Claim):
    """The ratio of the overhead of each probe in ``of`` to that of ``to``; None is no bound."""

    kind: Literal["ratio"]
    of: list[str]
    to: str
    at_least: float | None = None
    at_most: float | None = None


class OrderClaim(_Claim):
    """The order of probes by their overheads, the cheapest first."""

    kind: Literal["order"]
    order: Annotated[list[str], Field(min_length=2)]


class ChangeClaim(_Claim):
    """The ratio of each probe's overhead in the second of two ``tables`` to that in the first; None is no bound."""

    kind: Literal["change"]
    tables: Annotated[list[str], Field(min_length=2, max_length=2)]
    of: list[str]
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


Claim = RatioClaim | OrderClaim | ChangeClaim | TrapsClaim | SizeClaim | MechanismClaim


@lru_cache(maxsize=1)
def claims() -> Mapping[str, Claim]:
    """The claims by id, in the documents' order."""
    model: TypeAdapter[Claim] = TypeAdapter(Annotated[Claim, Field(discriminator="kind")])
    entries = read("claims.yaml")
    return MappingProxyType({name: model.validate_python({"id": name, **fields}) for name, fields in entries.items()})
