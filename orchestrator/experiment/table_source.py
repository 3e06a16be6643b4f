# SPDX-License-Identifier: GPL-2.0-only
"""Where a table's values come from: its own keys, and the defaults beside ``tables``.

Also the former spellings, which files, overrides and the experiments of earlier runs may have: ``macro`` for the
``benchmark`` of kinds that have it as ``former_key``, and former names of keys of a ``benchmark``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import ConfigError
from orchestrator.experiment.problems import Origins, Problem, config_error
from orchestrator.experiment.source import Data, KeyPath
from orchestrator.experiment.table import KindRegistry, TableKind, benchmark_keys

TABLES = "tables"
"""Several tables by name, each a mapping of keys of a table; at most 100.

The keys of a table that stand beside ``tables`` are defaults: a table's own value replaces them, and ``benchmark`` and
``kernel_for`` are merged key by key. Without ``tables`` the file is one table.
"""
BENCHMARK = "benchmark"


@dataclass(frozen=True)
class TableSource:
    """A table as it is validated, in today's spelling. ``places`` are the paths in the file of its parts."""

    name: str | None
    kind: TableKind
    data: Data
    places: Mapping[KeyPath, KeyPath]
    used: frozenset[KeyPath]
    """The paths of all values in the file that the table has, its own and defaults."""
    problems: tuple[Problem, ...] = ()

    def place(self, path: KeyPath) -> KeyPath:
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return (*self.places[path[:end]], *path[end:])
        return path


@dataclass(frozen=True)
class _Layer:
    """One ``benchmark`` mapping of several that a table's is merged of, with the path of each key."""

    content: Mapping[str, Data]
    paths: Mapping[str, KeyPath]
    is_own: bool = True


@dataclass(frozen=True)
class TableReader:
    """Makes the sources of a file's tables."""

    kinds: KindRegistry[TableKind]
    origins: Origins

    def one(self, data: Mapping[str, Data]) -> TableSource:
        """The source of the one table of a file: its keys, without those of the heading."""
        return self._source(None, dict(data), (), {})

    def several(self, tables: Mapping[str, Data], defaults: Mapping[str, Data]) -> list[TableSource]:
        """The sources of tables, each with the defaults that its kind of benchmark can have."""
        return [self._source(name, own, (TABLES, name), defaults) for name, own in tables.items()]

    def default_keys(self) -> set[str]:
        """The keys that may stand beside ``tables``."""
        return {*self.kinds.table_keys, *self.former_keys()}

    def former_keys(self) -> set[str]:
        """The former names of ``benchmark``."""
        return {kind.former_key for kind in self.kinds if kind.former_key is not None}

    def _source(self, name: str | None, own: Data, path: KeyPath, defaults: Mapping[str, Data]) -> TableSource:
        if not isinstance(own, dict):
            return TableSource(name, self.kinds.first, own, {(): path}, frozenset())
        kind = self._kind(own, defaults)
        spellings = {BENCHMARK, *self.former_keys()}
        merged: dict[str, Data] = {}
        places: dict[KeyPath, KeyPath] = {(): path}
        takes_all = not spellings & own.keys()
        for key, value in defaults.items():
            if key not in spellings and (takes_all or key in kind.table.model_fields):
                merged[key], places[key,] = value, (key,)
        for key, value in own.items():
            if key in spellings:
                continue
            default = merged.get(key)
            places[key,] = (*path, key)
            if isinstance(default, dict) and isinstance(value, dict):
                places |= {(key, inner): (key, inner) for inner in default.keys() - value.keys()}
                value = {**default, **value}
            merged[key] = value
        benchmark, benchmark_places, problems = self._benchmark(kind, own, path, defaults)
        places |= benchmark_places
        if benchmark is not None:
            merged[BENCHMARK] = benchmark
        used = frozenset(place for inside, place in places.items() if inside not in ((), (BENCHMARK,)))
        return TableSource(name, kind, merged, places, used, problems)

    def _kind(self, own: Mapping[str, Data], defaults: Mapping[str, Data]) -> TableKind:
        """The kind of a table's benchmark: by its own name, else by a default's."""
        former = sorted(self.former_keys())
        by_spelling = [kind for kind in self.kinds if kind.former_key in own]
        first = [BENCHMARK, *former] if not by_spelling else former
        for holder, keys in ((own, [*former, BENCHMARK]), (defaults, first)):
            for content in (holder.get(key) for key in keys):
                kind = self.kinds.of_benchmark(content.get("name")) if isinstance(content, dict) else None
                if kind is not None:
                    return kind
        return by_spelling[0] if by_spelling else self.kinds.first

    def _benchmark(
        self, kind: TableKind, own: Mapping[str, Data], path: KeyPath, defaults: Mapping[str, Data]
    ) -> tuple[Data, dict[KeyPath, KeyPath], tuple[Problem, ...]]:
        """A table's ``benchmark`` merged, the paths of its parts, and what is wrong with its spelling."""
        spellings = [key for key in (BENCHMARK, *sorted(self.former_keys())) if key in own]
        problems = self._both_spellings(own, path, spellings)
        layers: list[_Layer] = []
        places: dict[KeyPath, KeyPath] = {}
        for key in self._defaults_for(kind, own):
            content = defaults.get(key)
            if content is not None:
                places[BENCHMARK,] = (key,)
                if not isinstance(content, dict):
                    return content, places, ()
                layers.append(self._default_layer(kind, content, key, whole=not spellings))
        for key in spellings:
            content = own[key]
            places[BENCHMARK,] = (*path, key)
            if not isinstance(content, dict):
                return content, places, tuple(problems)
            layers.append(_Layer(content, {inner: (*path, key, inner) for inner in content}))
        merged: dict[str, Data] = {}
        taken_from: dict[str, tuple[_Layer, str]] = {}
        for layer in layers:
            for key, value in layer.content.items():
                current = kind.aliases.get(key, key)
                if current != key and current in layer.content:
                    sentence = f"it is the former name of {current}, which is there as well; leave it out"
                    problems.append(Problem(layer.paths[key], sentence))
                    continue
                if self._gives_way(layer, key, taken_from.get(current)):
                    continue
                merged[current], taken_from[current] = value, (layer, key)
                places[BENCHMARK, current] = layer.paths[key]
        return (merged if layers else None), places, tuple(problems)

    def _gives_way(self, layer: _Layer, key: str, earlier: tuple[_Layer, str] | None) -> bool:
        """Whether a value is the file's, and the earlier one of the same table or default an override."""
        if earlier is None or earlier[0].is_own != layer.is_own:
            return False
        return self.origins.overridden(earlier[0].paths[earlier[1]]) and not self.origins.overridden(layer.paths[key])

    def _both_spellings(self, own: Mapping[str, Data], path: KeyPath, spellings: list[str]) -> list[Problem]:
        if len(spellings) < 2 or any(self.origins.overridden((*path, key)) for key in spellings):
            return []
        sentence = f"it is the former name of {BENCHMARK}, which is there as well; leave it out"
        return [Problem((*path, key), sentence) for key in spellings if key != BENCHMARK]

    def _defaults_for(self, kind: TableKind, own: Mapping[str, Data]) -> Iterator[str]:
        """The defaults that a table's benchmark is merged of; the later one counts more."""
        if BENCHMARK in own or not self.former_keys() & own.keys():
            yield BENCHMARK
        if kind.former_key is not None:
            yield kind.former_key

    def _default_layer(self, kind: TableKind, content: dict[str, Data], key: str, *, whole: bool) -> _Layer:
        """A default as far as it is for this kind: a name that is another kind's is not, nor keys it has not."""
        same = self.kinds.of_benchmark(content.get("name")) is kind
        known = {*benchmark_keys(kind.table), *kind.aliases} - {"name"}
        taken = {inner: value for inner, value in content.items() if whole or same or inner in known}
        return _Layer(taken, {inner: (key, inner) for inner in taken}, is_own=False)


@dataclass(frozen=True)
class TableOrigin:
    """A table's file, the places of its values in there, and the overrides."""

    file: str
    origins: Origins
    source: TableSource

    def placed(self, problem: Problem) -> Problem:
        return Problem(self.source.place(problem.path), problem.sentence)


def error_of_tables(problems: Sequence[tuple[TableOrigin | None, Problem]]) -> ConfigError:
    """The one error that lists problems of an experiment's tables, each once, with its place where that is known."""
    origin = next((origin for origin, _ in problems if origin is not None), None)
    placed = [problem if one is None else one.placed(problem) for one, problem in problems]
    file, origins = (origin.file, origin.origins) if origin is not None else ("", Origins({}))
    return config_error(list(dict.fromkeys(placed)), origins, file)
