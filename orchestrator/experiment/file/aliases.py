# SPDX-License-Identifier: GPL-2.0-only
"""Former spellings of an experiment file, and their current ones.

Files, overrides and resolved experiments of earlier versions remain valid: ``macro:`` is ``benchmark:``, and a key of
``benchmark`` may have had another name. Earlier versions wrote out every default, those of other kinds' keys too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.problems import Problem
from orchestrator.experiment.file.source import Data, KeyPath
from orchestrator.experiment.kind import KindRegistry, TableKind, benchmark_keys

TABLES = "tables"
BENCHMARK = "benchmark"
_FORMER_BENCHMARK = "macro"


def current_steps(steps: Sequence[str], kinds: KindRegistry[TableKind]) -> list[str]:
    """The path of an override's key in the current spelling."""
    current = list(steps)
    at = 2 if current[:1] == [TABLES] else 0
    if current[at : at + 1] == [_FORMER_BENCHMARK]:
        current[at] = BENCHMARK
    if current[at : at + 1] == [BENCHMARK] and len(current) > at + 1:
        former = {old: new for kind in kinds for old, new in kind.aliases.items()}
        current[at + 1] = former.get(current[at + 1], current[at + 1])
    return current


def with_current_names(data: Data, origins: Origins, kinds: KindRegistry[TableKind]) -> list[Problem]:
    """Give ``data`` and ``origins`` the current spelling, in place; return a problem for each key in both spellings."""
    problems: list[Problem] = []
    _move_default_down(data, origins)
    for path, table in tables_in(data):
        problems += _renamed(table, path, origins, {_FORMER_BENCHMARK: BENCHMARK})
    for path, table in tables_in(data):
        benchmark = table.get(BENCHMARK)
        if isinstance(benchmark, dict):
            kind = kinds.of_benchmark(benchmark.get("name", _default_name(data)))
            problems += _renamed(benchmark, (*path, BENCHMARK), origins, dict(kind.aliases))
            _drop_defaults_of_others(benchmark, kind, kinds)
    return problems


def tables_in(data: Data) -> Iterator[tuple[KeyPath, dict[str, Data]]]:
    """The mappings that are a table or the defaults of tables, with their paths."""
    if not isinstance(data, dict):
        return
    yield (), data
    tables = data.get(TABLES)
    if isinstance(tables, dict):
        yield from (((TABLES, name), table) for name, table in tables.items() if isinstance(table, dict))


def _default_name(data: Data) -> Data:
    benchmark = data.get(BENCHMARK) if isinstance(data, dict) else None
    return benchmark.get("name") if isinstance(benchmark, dict) else None


def _move_default_down(data: Data, origins: Origins) -> None:
    """Where defaults of both spellings are beside ``tables``, move the former one into the tables that have it."""
    if not (isinstance(data, dict) and {BENCHMARK, _FORMER_BENCHMARK, TABLES} <= data.keys()):
        return
    default = data[_FORMER_BENCHMARK]
    tables = [(path, table) for path, table in tables_in(data) if path and _FORMER_BENCHMARK in table]
    if not isinstance(default, dict) or not tables:
        return
    del data[_FORMER_BENCHMARK]
    for path, table in tables:
        own = table[_FORMER_BENCHMARK]
        if isinstance(own, dict):
            for key, value in default.items():
                if key not in own:
                    own[key] = value
                    origins.copy((_FORMER_BENCHMARK, key), (*path, _FORMER_BENCHMARK, key))


def _renamed(holder: dict[str, Data], path: KeyPath, origins: Origins, names: dict[str, str]) -> Iterator[Problem]:
    for old, new in names.items():
        if old not in holder:
            continue
        if new in holder:
            yield Problem((*path, old), f"it is the former name of {new}, which is there as well; leave it out")
            continue
        content = {new if key == old else key: value for key, value in holder.items()}
        holder.clear()
        holder.update(content)
        origins.move((*path, old), (*path, new))


def _drop_defaults_of_others(benchmark: dict[str, Data], kind: TableKind, kinds: KindRegistry[TableKind]) -> None:
    own = benchmark_keys(kind.table)
    for other in kinds:
        for key, field in benchmark_keys(other.table).items():
            default = field.default if not isinstance(field.default, tuple) else list(field.default)
            if key in benchmark and key not in own and not field.is_required() and benchmark[key] == default:
                del benchmark[key]
