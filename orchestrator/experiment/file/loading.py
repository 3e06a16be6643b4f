# SPDX-License-Identifier: GPL-2.0-only
"""How an experiment file is loaded: read, overridden, and checked table by table, with all problems at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from orchestrator.experiment.experiment import Experiment, Heading, NamedTable
from orchestrator.experiment.file import fields
from orchestrator.experiment.file.aliases import BENCHMARK, TABLES, current_steps, with_current_names
from orchestrator.experiment.file.defaults import Defaults, at_its_own_place, idle_overrides
from orchestrator.experiment.file.fields import QemuCpuNames, Strict, Surroundings
from orchestrator.experiment.file.overrides import Origins, apply_overrides
from orchestrator.experiment.file.problems import UNKNOWN_KEY, Problem, config_error, problems_of, shown
from orchestrator.experiment.file.source import Data, KeyPath, read_source
from orchestrator.experiment.file.user_paths import make_absolute
from orchestrator.experiment.kind import KindRegistry, TableKind, benchmark_keys
from orchestrator.experiment.machine import Machine

MAX_TABLES = 100

StrictT = TypeVar("StrictT", bound=Strict)


def load_experiment(
    path: Path,
    kinds: KindRegistry[TableKind],
    overrides: Sequence[str] = (),
    qemu_cpu_names: QemuCpuNames | None = None,
) -> Experiment:
    """Load an experiment file, apply ``KEY=VALUE`` overrides, and check everything.

    ``qemu_cpu_names`` is called for QEMU's own CPU models only when the catalogue lacks the one named.
    Raises ConfigError, which lists all problems: place, key, what was found, what is allowed.
    """
    source = read_source(path)
    origins = Origins({key: f"{path}:{line}" for key, line in source.lines.items()})
    twice = with_current_names(source.data, origins, kinds)
    data = apply_overrides(source.data, overrides, origins, partial(current_steps, kinds=kinds))
    twice += with_current_names(data, origins, kinds)
    make_absolute(data, origins, path.parent.absolute(), {key for kind in kinds for key in kind.paths})
    context = Surroundings(qemu_cpu_names, kinds.benchmarks, kinds.rows)
    checked = twice or _Loader(kinds, context).load(data, origins)
    if isinstance(checked, Experiment):
        return checked
    raise config_error(list(dict.fromkeys(at_its_own_place(one, data) for one in checked)), origins, str(path))


@dataclass(frozen=True)
class _Loader:
    kinds: KindRegistry[TableKind]
    context: Surroundings

    def load(self, data: Data, origins: Origins) -> Experiment | list[Problem]:
        """The experiment, or all its problems."""
        if not isinstance(data, dict):
            return [Problem((), f"found {shown(data)}; expected a mapping")]
        heading_data = {key: value for key, value in data.items() if key in Heading.model_fields}
        rest = {key: value for key, value in data.items() if key not in Heading.model_fields}
        if TABLES not in data:
            heading, problems = self._checked(Heading, heading_data, (), {})
            named, more = self._table(None, rest, ())
            problems += more
        else:
            defaults = Defaults.of(rest, self.kinds)
            idle = idle_overrides(data, defaults, origins)
            if idle:
                return idle
            strange = {key: value for key, value in rest.items() if key not in defaults.data and key != TABLES}
            every_key = [*Heading.model_fields, *self.kinds.table_keys, TABLES]
            heading, problems = self._checked(Heading, {**heading_data, **strange}, (), {"": every_key})
            named, more = self._tables(data[TABLES], defaults)
            problems += more
        if problems or heading is None:
            return problems
        return Experiment(heading, named)

    def _tables(self, tables: Data, defaults: Defaults) -> tuple[list[NamedTable], list[Problem]]:
        if not isinstance(tables, dict) or not 1 <= len(tables) <= MAX_TABLES:
            found = f"{len(tables)} tables" if isinstance(tables, dict) else shown(tables)
            return [], [Problem((TABLES,), f"found {found}; expected a mapping of 1 to {MAX_TABLES} tables by name")]
        named: list[NamedTable] = []
        problems: list[Problem] = []
        for name, own in tables.items():
            path = (TABLES, name)
            problems += _name_problems(name, path)
            more_tables, more = self._table(name, defaults.merged(own), path)
            named += more_tables
            problems += more
        return named, problems

    def _table(self, name: str | None, data: Data, path: KeyPath) -> tuple[list[NamedTable], list[Problem]]:
        benchmark = data.get(BENCHMARK) if isinstance(data, dict) else None
        kind = self.kinds.of_benchmark(benchmark.get("name") if isinstance(benchmark, dict) else None)
        beside = (*Heading.model_fields, *kind.table.model_fields, TABLES)
        keys = {
            "": tuple(kind.table.model_fields) if path else beside,
            "machines": tuple(Machine.model_fields),
            BENCHMARK: tuple(benchmark_keys(kind.table)),
        }
        table, problems = self._checked(kind.table, data, path, keys)
        problems = [self._of_another_kind(problem, benchmark, (*path, BENCHMARK)) for problem in problems]
        return ([] if table is None else [NamedTable(name, kind, table)]), problems

    def _of_another_kind(self, problem: Problem, benchmark: Data, path: KeyPath) -> Problem:
        """The problem; for a key of another kind's benchmark, with the sentence that this benchmark lacks it."""
        name = benchmark.get("name") if isinstance(benchmark, dict) else None
        known = {key for kind in self.kinds for key in benchmark_keys(kind.table)}
        strange = problem.path[:-1] == path and problem.sentence.startswith(UNKNOWN_KEY)
        if not (strange and isinstance(name, str) and name in self.kinds.benchmarks and problem.path[-1] in known):
            return problem
        return Problem(problem.path, f"benchmark '{name}' has no such key; leave it out")

    def _checked(
        self, model: type[StrictT], data: Data, path: KeyPath, keys: Mapping[str, Sequence[str]]
    ) -> tuple[StrictT | None, list[Problem]]:
        """A part of the file as a model, or its problems; ``keys`` are those allowed there and below."""

        def keys_at(inside: KeyPath) -> Sequence[str]:
            steps = [step for step in inside[len(path) :] if isinstance(step, str)]
            return keys.get(steps[0] if steps else "", keys[""])

        try:
            return model.model_validate(data, context=self.context), []
        except ValidationError as error:
            return None, problems_of(error, keys_at, lambda inside: (*path, *inside))


def _name_problems(name: str, path: KeyPath) -> list[Problem]:
    try:
        fields.name(name)
    except ValueError as error:
        return [Problem(path, str(error))]
    return []
