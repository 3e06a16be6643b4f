# SPDX-License-Identifier: GPL-2.0-only
"""How an experiment file is loaded: read, overridden, and checked table by table, with all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from orchestrator.catalog.images import WrittenRecipe
from orchestrator.catalog.spelling import choices_sentence
from orchestrator.errors import ConfigError
from orchestrator.experiment.experiment import Experiment, Heading, NamedTable
from orchestrator.experiment.file import fields
from orchestrator.experiment.file.defaults import idle_overrides, unknown_benchmark_keys
from orchestrator.experiment.file.fields import QemuCpuNames, Strict, Surroundings
from orchestrator.experiment.file.origin import TableOrigin
from orchestrator.experiment.file.overrides import Origins, apply_overrides
from orchestrator.experiment.file.problems import Problem, config_error, problems_of, shown
from orchestrator.experiment.file.source import Data, KeyPath, Source, read_source, without_marks
from orchestrator.experiment.file.table_source import BENCHMARK, TABLES, TableReader, TableSource
from orchestrator.experiment.file.user_paths import Moved, as_written, make_absolute
from orchestrator.experiment.kind import KindRegistry, TableKind, benchmark_keys
from orchestrator.experiment.machine import Machine
from orchestrator.program import PROGRAM

MAX_TABLES = 100

StrictT = TypeVar("StrictT", bound=Strict)


def load_experiment(
    path: Path,
    kinds: KindRegistry[TableKind],
    overrides: Sequence[str] = (),
    qemu_cpu_names: QemuCpuNames | None = None,
    moved: Moved = as_written,
) -> Experiment:
    """Load an experiment file, apply ``KEY=VALUE`` overrides, and check everything.

    ``qemu_cpu_names`` is asked for QEMU's own CPU models only when the catalogue has not the one named. ``moved`` says
    where to look for what the file names by a path.

    Raises ConfigError, which lists all that is wrong: place, key, what was found, what is allowed.
    """
    return _load(_Read(path, read_source(path), overrides, moved), kinds, qemu_cpu_names)


def load_resolved(path: Path, kinds: KindRegistry[TableKind], qemu_cpu_names: QemuCpuNames | None) -> Experiment:
    """Load the resolved experiment of a run, which an earlier version may have written.

    That wrote every default out, in a ``benchmark`` those of other kinds too, and texts without quotes where YAML needs
    none. Raises ConfigError.
    """
    source = read_source(path)
    source = replace(source, data=without_marks(source.data))
    _drop_defaults_of_other_kinds(source.data, kinds)
    return _load(_Read(path, source), kinds, qemu_cpu_names)


@dataclass(frozen=True)
class _Read:
    """What was read, what of it is overridden, and where that is which it names."""

    path: Path
    source: Source
    overrides: Sequence[str] = ()
    moved: Moved = as_written


def _load(read: _Read, kinds: KindRegistry[TableKind], qemu_cpu_names: QemuCpuNames | None) -> Experiment:
    path = read.path
    origins = Origins({key: f"{path}:{line}" for key, line in read.source.lines.items()})
    data = apply_overrides(read.source.data, read.overrides, origins)
    make_absolute(data, origins, path.parent.absolute(), {key for kind in kinds for key in kind.paths}, read.moved)
    context = Surroundings(qemu_cpu_names, kinds.benchmarks, kinds.rows)
    checked = _Loader(kinds, context, origins, str(path)).load(data)
    if isinstance(checked, Experiment):
        return checked
    raise config_error(list(dict.fromkeys(checked)), origins, str(path))


@dataclass(frozen=True)
class _Loader:
    kinds: KindRegistry[TableKind]
    context: Surroundings
    origins: Origins
    file: str

    def load(self, data: Data) -> Experiment | list[Problem]:
        """The experiment, or all that is wrong with it. Raises ConfigError for what is none at all."""
        if not isinstance(data, dict):
            return [Problem((), f"found {shown(data)}; expected keys with values, such as name: my-probes")]
        every_key = (*Heading.model_fields, *self.kinds.table_keys, TABLES)
        if data.keys() & WrittenRecipe.model_fields.keys() and not data.keys() & set(every_key):
            one_guest = f"{PROGRAM} exec --image ./mine.yaml -- COMMAND"
            hint = f"name it in an experiment, image: ./mine.yaml; for one guest: {one_guest}"
            raise ConfigError("this is the recipe of an image, and no experiment", where=self.file, hint=hint)
        reader = TableReader(self.kinds, self.origins)
        heading_data = {key: value for key, value in data.items() if key in Heading.model_fields}
        rest = {key: value for key, value in data.items() if key not in Heading.model_fields}
        problems: list[Problem] = []
        if TABLES not in data:
            sources = [reader.one(rest)]
        else:
            tables = data[TABLES]
            if not isinstance(tables, dict) or not 1 <= len(tables) <= MAX_TABLES:
                found = f"{len(tables)} tables" if isinstance(tables, dict) else shown(tables)
                sentence = f"found {found}; expected a mapping of 1 to {MAX_TABLES} tables by name"
                return [Problem((TABLES,), sentence)]
            known = reader.default_keys()
            heading_data |= {key: value for key, value in rest.items() if key not in known and key != TABLES}
            defaults = {key: value for key, value in rest.items() if key in known}
            sources = reader.several(tables, defaults)
            idle = idle_overrides(defaults, sources, self.origins)
            if idle:
                return idle
            problems += [problem for name in tables for problem in _name_problems(name)]
            problems += unknown_benchmark_keys(defaults, sources, reader)
        heading, of_heading = self._checked(Heading, heading_data, lambda path: self._unknown(path, every_key))
        named = [self._table(source, problems) for source in sources]
        if heading is None or problems:
            return [*of_heading, *problems]
        return Experiment(heading, [table for table in named if table is not None])

    def _table(self, source: TableSource, problems: list[Problem]) -> NamedTable | None:
        """The table; what is wrong with it is added to ``problems``."""
        table, found = self._checked(source.kind.table, source.data, lambda path: self._unknown_in(source, path))
        problems += source.problems
        for problem in found:
            other = None if problem.other is None else source.place(problem.other)
            problems.append(Problem(source.place(problem.path), problem.sentence, other))
        origin = TableOrigin(self.file, self.origins, source)
        return None if table is None else NamedTable(source.name, source.kind, table, origin)

    def _unknown_in(self, source: TableSource, path: KeyPath) -> str:
        """What to say of a key that a table of this kind has not."""
        keys = source.kind.table.model_fields
        if path[0] == BENCHMARK and len(path) > 1:
            name = _benchmark_name(source.data)
            if self.kinds.of_benchmark(name) and any(path[1] in benchmark_keys(kind.table) for kind in self.kinds):
                return f"benchmark '{name}' has no such key; leave it out"
            return _unknown(path, tuple(benchmark_keys(source.kind.table)))
        if path[0] == "machines" and len(path) > 1:
            return _unknown(path, tuple(Machine.model_fields))
        return self._unknown(path, tuple(keys) if source.name is not None else (*Heading.model_fields, *keys, TABLES))

    def _unknown(self, path: KeyPath, allowed: Sequence[str]) -> str:
        """What to say of a key that is not among a file's or a table's: those of its benchmark are one level below."""
        key = str(path[-1])
        if key != "name" and any(key in benchmark_keys(kind.table) for kind in self.kinds):
            return f"it is a key of '{BENCHMARK}', not beside it; write {BENCHMARK}: {{name: ..., {key}: ...}}"
        return _unknown(path, allowed)

    def _checked(
        self, model: type[StrictT], data: Data, unknown: Callable[[KeyPath], str]
    ) -> tuple[StrictT | None, list[Problem]]:
        """A part of the file as a model, or what is wrong with it."""
        try:
            return model.model_validate(data, context=self.context), []
        except ValidationError as error:
            return None, problems_of(error, unknown)


def _unknown(path: KeyPath, allowed: Sequence[str]) -> str:
    return f"unknown key; {choices_sentence(str(path[-1]), allowed)}"


def _benchmark_name(table: Data) -> Data:
    benchmark = table.get(BENCHMARK) if isinstance(table, dict) else None
    return benchmark.get("name") if isinstance(benchmark, dict) else None


def _name_problems(name: str) -> list[Problem]:
    try:
        fields.name(name)
    except ValueError as error:
        return [Problem((TABLES, name), str(error))]
    return []


def _drop_defaults_of_other_kinds(data: Data, kinds: KindRegistry[TableKind]) -> None:
    tables = data.get(TABLES) if isinstance(data, dict) else None
    for table in [data, *(tables.values() if isinstance(tables, dict) else ())]:
        benchmark = table.get(BENCHMARK) if isinstance(table, dict) else None
        kind = kinds.of_benchmark(benchmark.get("name")) if isinstance(benchmark, dict) else None
        if kind is None or not isinstance(benchmark, dict):
            continue
        own = benchmark_keys(kind.table)
        for other in kinds:
            for key, field in benchmark_keys(other.table).items():
                default = list(field.default) if isinstance(field.default, tuple) else field.default
                same = type(benchmark.get(key)) is type(default) and benchmark.get(key) == default
                if key in benchmark and key not in own and same:
                    del benchmark[key]
