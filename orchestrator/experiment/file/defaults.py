# SPDX-License-Identifier: GPL-2.0-only
"""The defaults that an experiment's tables take from the keys beside ``tables``, and the place of their problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.experiment.file.aliases import BENCHMARK, TABLES
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.problems import Problem
from orchestrator.experiment.file.source import Data, KeyPath
from orchestrator.experiment.kind import KindRegistry, TableKind

_OF_NO_TABLE = "changes nothing: no table here is of a kind of benchmark that has such a key"


@dataclass(frozen=True)
class Defaults:
    """The keys of a table that are beside ``tables``, as far as tables of their kind of benchmark have them.

    A table's own value replaces a default; only mappings (``benchmark``, ``kernel_for``) are merged, key by key, and a
    ``benchmark`` only with one of its own kind.
    """

    data: Mapping[str, Data]
    kinds: KindRegistry[TableKind]

    @staticmethod
    def of(data: Mapping[str, Data], kinds: KindRegistry[TableKind]) -> Defaults:
        """The defaults in a file with this content."""
        keys = set(kinds.table_keys)
        return Defaults({key: value for key, value in data.items() if key in keys}, kinds)

    def merged(self, table: Data) -> Data:
        """A table with the defaults that it takes."""
        return _merged(dict(self.for_table(table)), table)

    def kind_of(self, table: Data) -> TableKind:
        """The kind of a table's benchmark: by its own name, or by the default's."""
        own = _benchmark_name(table)
        return self.kinds.of_benchmark(_benchmark_name(self.data) if own is None else own)

    def for_table(self, table: Data) -> Mapping[str, Data]:
        """The defaults that a table can take."""
        if not isinstance(table, dict) or BENCHMARK not in table:
            return self.data
        kind = self.kind_of(table)
        other = self.kinds.of_benchmark(_benchmark_name(self.data)) is not kind
        return {
            key: value
            for key, value in self.data.items()
            if key in kind.table.model_fields and not (other and key == BENCHMARK)
        }


def idle_overrides(data: dict[str, Data], defaults: Defaults, origins: Origins) -> list[Problem]:
    """Return a problem for each default that was set on the command line and that no table takes."""
    tables = data[TABLES]
    if not isinstance(tables, dict) or not tables:
        return []
    first: dict[str, KeyPath] = {}
    taken: set[str] = set()  # one override may set several values; it is idle only when all of them are idle
    for path in _leaves(dict(defaults.data), ()):
        if origins.overridden(path):
            place = origins.where(path)
            first.setdefault(place, path)
            possible = (table for table in tables.values() if path[0] in defaults.for_table(table))
            if any(_takes(table, path) for table in possible):
                taken.add(place)
    return [
        Problem(path, _idle(path, next(iter(tables))) if _known(path, tables, defaults) else _OF_NO_TABLE)
        for place, path in first.items()
        if place not in taken
    ]


def at_its_own_place(problem: Problem, data: Data) -> Problem:
    """Return a table's problem with a default at the default's own place, where all tables share it."""
    other = None if problem.other is None else _default_path(problem.other, data)
    return Problem(_default_path(problem.path, data), problem.sentence, other)


def _benchmark_name(holder: object) -> Data:
    benchmark = holder.get(BENCHMARK) if isinstance(holder, Mapping) else None
    return benchmark.get("name") if isinstance(benchmark, dict) else None


def _merged(defaults: Data, own: Data) -> Data:
    if not isinstance(defaults, dict) or not isinstance(own, dict):
        return own
    both = {key: _merged(value, own[key]) if key in own else value for key, value in defaults.items()}
    return {**both, **{key: value for key, value in own.items() if key not in both}}


def _known(path: KeyPath, tables: Mapping[str, Data], defaults: Defaults) -> bool:
    """Whether any table could have the default at ``path``."""
    return any(path[0] in defaults.for_table(table) for table in tables.values())


def _idle(path: KeyPath, table: str) -> str:
    key = ".".join(str(step) for step in path if isinstance(step, str))
    return f"changes nothing, because every table has its own; set each table's, as in {TABLES}.{table}.{key}=..."


def _takes(table: Data, path: KeyPath) -> bool:
    """Whether a table has no value of its own in the place of the default at ``path``."""
    own = table
    for step in path:
        if not isinstance(own, dict):
            return False
        if step not in own:
            return True
        own = own[str(step)]
    return False


def _leaves(data: Data, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(data, list) and data:
        for index, item in enumerate(data):
            yield from _leaves(item, (*path, index))
    else:
        yield path


def _default_path(path: KeyPath, data: Data) -> KeyPath:
    if len(path) < 3 or path[0] != TABLES:
        return path
    return path[2:] if not _holds(data, path) and _holds(data, path[2:]) else path


def _holds(data: Data, path: KeyPath) -> bool:
    inside = data
    for step in path:
        if isinstance(inside, dict) and step in inside:
            inside = inside[str(step)]
        elif isinstance(inside, list) and isinstance(step, int) and step < len(inside):
            inside = inside[step]
        else:
            return False
    return True
