# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment's tables take from the keys that stand beside them, and where a problem with those is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.benchmarks.system.table import MacroMatrix
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.problems import Problem
from orchestrator.experiment.file.source import Data, KeyPath
from orchestrator.experiment.table import Matrix

TABLES = "tables"

_MICRO, _MACRO = "benchmark", "macro"
_OF_NO_TABLE = "changes nothing: tables of whole-system workloads (macro) have no such key, those of benchmarks others"
_KEYS = {*Matrix.model_fields, *MacroMatrix.model_fields}


def is_macro(table: object) -> bool:
    """Whether a table is one of whole-system workloads."""
    return isinstance(table, MacroMatrix) or (isinstance(table, dict) and _MACRO in table)


def with_defaults(data: dict[str, Data]) -> Data:
    """Give each table the keys of a matrix that stand beside ``tables``, as far as tables of its kind have them.

    A table's own value replaces a default; only mappings (``benchmark``, ``kernel_for``) are merged, key by key.
    """
    defaults = _defaults(data)
    rest: dict[str, Data] = {key: value for key, value in data.items() if key not in defaults}
    tables = data[TABLES]
    if isinstance(tables, dict):
        rest[TABLES] = {name: _merged(_of_its_kind(defaults, table), table) for name, table in tables.items()}
    return rest


def idle_overrides(data: dict[str, Data], origins: Origins) -> list[Problem]:
    """Return a problem for each default that was set on the command line and that no table takes."""
    tables = data[TABLES]
    if not isinstance(tables, dict) or not tables:
        return []
    defaults = _defaults(data)
    first: dict[str, KeyPath] = {}
    taken: set[str] = set()  # one override may set several values; it is idle only when all of them are
    for path in _leaves(defaults, ()):
        if origins.overridden(path):
            place = origins.where(path)
            first.setdefault(place, path)
            kinds = (table for table in tables.values() if path[0] in _of_its_kind(defaults, table))
            if any(_takes(table, path) for table in kinds):
                taken.add(place)
    return [
        Problem(path, _idle(path, next(iter(tables))) if _known(path, tables.values(), defaults) else _OF_NO_TABLE)
        for place, path in first.items()
        if place not in taken
    ]


def at_its_own_place(problem: Problem, data: Data) -> Problem:
    """Return a problem with what a table has from the defaults as one with the default, the same for all tables."""
    other = None if problem.other is None else _user_path(problem.other, data)
    return Problem(_user_path(problem.path, data), problem.sentence, other)


def _defaults(data: dict[str, Data]) -> dict[str, Data]:
    return {key: value for key, value in data.items() if key in _KEYS}


def _of_its_kind(defaults: dict[str, Data], table: Data) -> dict[str, Data]:
    if not isinstance(table, dict) or not (_MACRO in table or _MICRO in table):
        return defaults
    kind = MacroMatrix if is_macro(table) else Matrix
    return {key: value for key, value in defaults.items() if key in kind.model_fields}


def _merged(defaults: Data, own: Data) -> Data:
    if not isinstance(defaults, dict) or not isinstance(own, dict):
        return own
    both = {key: _merged(value, own[key]) if key in own else value for key, value in defaults.items()}
    return {**both, **{key: value for key, value in own.items() if key not in both}}


def _known(path: KeyPath, tables: Iterable[Data], defaults: dict[str, Data]) -> bool:
    """Whether any table could have the default at ``path``."""
    return any(path[0] in _of_its_kind(defaults, table) for table in tables)


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


def _user_path(path: KeyPath, data: Data) -> KeyPath:
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
