# SPDX-License-Identifier: GPL-2.0-only
"""Which defaults beside ``tables`` no table takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.catalog.spelling import choices_sentence
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.problems import Problem
from orchestrator.experiment.file.source import Data, KeyPath
from orchestrator.experiment.file.table_source import BENCHMARK, TABLES, TableReader, TableSource
from orchestrator.experiment.kind import benchmark_keys

_OF_NO_TABLE = "changes nothing: no table here is of a kind of benchmark that has such a key"


def idle_overrides(defaults: Mapping[str, Data], tables: Sequence[TableSource], origins: Origins) -> list[Problem]:
    """Return a problem for each default that was set on the command line and that no table takes."""
    used = {path for table in tables for path in table.used}
    first: dict[str, KeyPath] = {}
    taken: set[str] = set()  # one override may set several values; it is idle only when all of them are
    for path in _leaves(dict(defaults), ()):
        if origins.overridden(path):
            place = origins.where(path)
            first.setdefault(place, path)
            if any(path[:end] in used for end in range(len(path) + 1)):
                taken.add(place)
    return [Problem(path, _idle(path, tables)) for place, path in first.items() if place not in taken]


def unknown_benchmark_keys(
    defaults: Mapping[str, Data], tables: Sequence[TableSource], reader: TableReader
) -> list[Problem]:
    """Return a problem for each key of a default ``benchmark`` that no table here has."""
    used = {path for table in tables for path in table.used}  # what a table takes, it also checks
    keys = {key: None for table in tables for key in benchmark_keys(table.kind.table)}
    former = {key for table in tables for key in table.kind.aliases}
    mappings = {spelling: defaults.get(spelling) for spelling in (BENCHMARK, *sorted(reader.former_keys()))}
    return [
        Problem((spelling, key), f"unknown key; {choices_sentence(key, list(keys))}")
        for spelling, content in mappings.items()
        if isinstance(content, dict)
        for key in content
        if key not in keys and key not in former and (spelling, key) not in used
    ]


def _idle(path: KeyPath, tables: Sequence[TableSource]) -> str:
    if not any(_could_take(table, path) for table in tables):
        return _OF_NO_TABLE
    key = ".".join(str(step) for step in path if isinstance(step, str))
    example = f"{TABLES}.{tables[0].name}.{key}=..."
    return f"changes nothing, because every table has its own; set each table's, as in {example}"


def _could_take(table: TableSource, path: KeyPath) -> bool:
    """Whether a table of this kind can have the value."""
    key, *inner = path
    if key in (BENCHMARK, table.kind.former_key):
        known = {*benchmark_keys(table.kind.table), *table.kind.aliases}
        return not inner or inner[0] in known
    return key in table.kind.table.model_fields


def _leaves(data: Data, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(data, list) and data:
        for index, item in enumerate(data):
            yield from _leaves(item, (*path, index))
    else:
        yield path
