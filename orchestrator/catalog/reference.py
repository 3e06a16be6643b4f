# SPDX-License-Identifier: GPL-2.0-only
"""The published measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from statistics import fmean
from types import MappingProxyType
from typing import Literal, Self

from pydantic import Field, model_validator

from orchestrator.catalog.data import Fact, read
from orchestrator.catalog.spelling import unknown
from orchestrator.errors import ConfigError

BASELINE_COLUMN = "baseline"

Layout = Literal["list", "mail"]
"""``list``: a column per probe, a row per sample. ``mail``: a row per probe, and several tables side by side."""


class ReferenceTable(Fact):
    """A published table: ``samples`` or ``overheads`` by column, in ``unit``, and what they were measured on.

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
        """The table's name within its document."""
        return self.id.rpartition("/")[2]

    @property
    def document_id(self) -> str:
        """The document's name: the prefix of all its tables' ids."""
        return self.id.rpartition("/")[0]

    @property
    def columns(self) -> Sequence[str]:
        """The columns with figures, in the table's order."""
        return tuple(self.samples or self.published_overheads)

    def average(self, column: str) -> float | None:
        """Return the mean of the column's samples, None where only overheads were published.

        Raises ConfigError for an unknown column.
        """
        self._check(column)
        return fmean(self.samples[column]) if self.samples else None

    def overhead(self, column: str) -> float:
        """Return the published overhead, or the column's average less the baseline's.

        Raises ConfigError for an unknown column.
        """
        self._check(column)
        if self.published_overheads:
            return self.published_overheads[column]
        return fmean(self.samples[column]) - fmean(self.samples[BASELINE_COLUMN])

    def _check(self, column: str) -> None:
        if column not in self.columns:
            raise ConfigError(unknown(f"column of {self.id}", column, self.columns))


@lru_cache(maxsize=1)
def reference_tables() -> Mapping[str, ReferenceTable]:
    """Return every published table by id, such as ``djprobe-2005/list5``."""
    tables: dict[str, ReferenceTable] = {}
    names = (entry.name for entry in files(__package__).joinpath("reference").iterdir())
    for name in sorted(name for name in names if name.endswith(".yaml")):
        content = read(f"reference/{name}")
        lists = content.pop("tables")
        if not isinstance(lists, dict):
            raise TypeError(f"catalogue file reference/{name} holds no tables")
        for table, fields in lists.items():
            table_id = f"{name.removesuffix('.yaml')}/{table}"
            tables[table_id] = ReferenceTable.model_validate({"id": table_id, **content, **fields})
    return MappingProxyType(tables)


def reference_table(table_id: str) -> ReferenceTable:
    """Return one published table. Raises ConfigError, with the nearest id, for an unknown one."""
    table = reference_tables().get(table_id)
    if table is None:
        raise ConfigError(unknown("reference table", table_id, reference_tables()))
    return table
