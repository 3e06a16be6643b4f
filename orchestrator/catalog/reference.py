# SPDX-License-Identifier: GPL-2.0-only
"""What the published documents measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from statistics import fmean
from types import MappingProxyType

from orchestrator.catalog.data import Fact, read
from orchestrator.catalog.spelling import unknown
from orchestrator.errors import ConfigError

_BASELINE_COLUMN = "baseline"


class ReferenceTable(Fact):
    """A published table: its samples by column, in ``unit``, and what they were measured on.

    ``id`` is ``document/table``; ``cpu`` names the catalogue's model that stands for ``processor``.
    """

    id: str
    title: str
    document: str
    unit: str
    cpu: str
    processor: str
    kernel: str
    handler: str
    samples: dict[str, list[float]]

    def average(self, column: str) -> float:
        """Return the mean of the column's samples. Raises ConfigError for a column the table has not."""
        if column not in self.samples:
            raise ConfigError(unknown(f"column of {self.id}", column, self.samples))
        return fmean(self.samples[column])

    def overhead(self, column: str) -> float:
        """Return the column's average less the baseline's. Raises ConfigError for an unknown column."""
        return self.average(column) - self.average(_BASELINE_COLUMN)


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
    """Return one published table. Raises ConfigError, with the nearest id, when there is none such."""
    table = reference_tables().get(table_id)
    if table is None:
        raise ConfigError(unknown("reference table", table_id, reference_tables()))
    return table
