# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment file may say, and how it is loaded."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Discriminator, Tag, ValidationError

from orchestrator.benchmarks.calls.benchmark import Benchmark
from orchestrator.benchmarks.system.table import Macro, MacroMatrix
from orchestrator.experiment.file import fields
from orchestrator.experiment.file.defaults import TABLES, at_its_own_place, idle_overrides, is_macro, with_defaults
from orchestrator.experiment.file.fields import QemuCpuNames, Surroundings
from orchestrator.experiment.file.overrides import Origins, apply_overrides
from orchestrator.experiment.file.problems import config_error, problems_of, shown, wrong
from orchestrator.experiment.file.source import Data, KeyPath, read_source
from orchestrator.experiment.file.strict import Strict
from orchestrator.experiment.file.user_paths import make_absolute
from orchestrator.experiment.table import Machine, Matrix

__all__ = ["Benchmark", "Experiment", "Machine", "MacroExperiment", "TabledExperiment", "load_experiment"]

AnyMatrix = Matrix | MacroMatrix

MAX_TABLES = 100

_EVERY_KEY = list(dict.fromkeys([*Matrix.model_fields, *MacroMatrix.model_fields]))
_MICRO_TAG, _MACRO_TAG = "<micro>", "<macro>"
"""What pydantic puts into the path of a problem to tell which kind of table it is."""

_Table = Annotated[
    Annotated[Matrix, Tag(_MICRO_TAG)] | Annotated[MacroMatrix, Tag(_MACRO_TAG)],
    Discriminator(lambda value: _MACRO_TAG if is_macro(value) else _MICRO_TAG),
]


def _tables(value: object) -> object:
    if not isinstance(value, dict) or not 1 <= len(value) <= MAX_TABLES:
        found = f"{len(value)} tables" if isinstance(value, dict) else shown(value)
        raise wrong(f"found {found}; expected a mapping of 1 to {MAX_TABLES} tables by name")
    return value


class _Headed(Strict):
    """What every experiment says of itself. With ``charts`` bar charts are drawn at the end of a run."""

    name: Annotated[str, BeforeValidator(fields.name)]
    description: Annotated[str | None, BeforeValidator(fields.description)] = None
    charts: Annotated[bool, BeforeValidator(fields.truth)] = False

    @abstractmethod
    def _plain(self) -> dict[str, Any]:
        """The tables as plain values."""

    def resolved_yaml(self) -> str:
        """Return the experiment as YAML with every default written out; it loads as an equal experiment."""
        heading = self.model_dump(mode="json", include=set(_Headed.model_fields))
        plain = {**heading, **self._plain()}
        return yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100)

    def digest(self) -> str:
        """Return the SHA-256 of the resolved experiment, in hex: equal experiments have equal digests."""
        return hashlib.sha256(self.resolved_yaml().encode()).hexdigest()


class Experiment(Matrix, _Headed):
    """An experiment of one table."""

    @property
    def matrices(self) -> list[tuple[str | None, AnyMatrix]]:
        """Its tables in order, by name: one without a name."""
        return [(None, self)]

    def _plain(self) -> dict[str, Any]:
        return self.resolved()


class MacroExperiment(MacroMatrix, _Headed):
    """An experiment of one table, of a whole-system workload."""

    @property
    def matrices(self) -> list[tuple[str | None, AnyMatrix]]:
        """Its tables in order, by name: one without a name."""
        return [(None, self)]

    def _plain(self) -> dict[str, Any]:
        return self.resolved()


class TabledExperiment(_Headed):
    """An experiment of several tables, each a matrix of its own."""

    tables: Annotated[dict[Annotated[str, BeforeValidator(fields.name)], _Table], BeforeValidator(_tables)]

    @property
    def matrices(self) -> list[tuple[str | None, AnyMatrix]]:
        """Its tables in order, by name."""
        return list(self.tables.items())

    def _plain(self) -> dict[str, Any]:
        return {TABLES: {name: matrix.resolved() for name, matrix in self.tables.items()}}


AnyExperiment = Experiment | MacroExperiment | TabledExperiment


def load_experiment(
    path: Path, overrides: Sequence[str] = (), qemu_cpu_names: QemuCpuNames | None = None
) -> AnyExperiment:
    """Load an experiment file, apply ``KEY=VALUE`` overrides, and check everything.

    ``qemu_cpu_names`` is asked for QEMU's own CPU models only when the catalogue has not the one named.
    Raises ConfigError, which lists all that is wrong: place, key, what was found, what is allowed.
    """
    source = read_source(path)
    origins = Origins({key: f"{path}:{line}" for key, line in source.lines.items()})
    data = apply_overrides(source.data, overrides, origins)
    make_absolute(data, origins, path.parent.absolute())
    context = Surroundings(qemu_cpu_names)
    try:
        if isinstance(data, dict) and TABLES in data:
            idle = idle_overrides(data, origins)
            if idle:
                raise config_error(idle, origins, str(path))
            return TabledExperiment.model_validate(with_defaults(data), context=context)
        kind = MacroExperiment if is_macro(data) else Experiment
        return kind.model_validate(data, context=context)
    except ValidationError as error:
        problems = [
            at_its_own_place(problem, data) for problem in problems_of(error, partial(_keys_at, data), _without_tag)
        ]
        raise config_error(list(dict.fromkeys(problems)), origins, str(path)) from None


def _without_tag(path: KeyPath) -> KeyPath:
    """Of pydantic's path to a value, what the file has: not which kind of table it is in."""
    tagged = path[:1] == (TABLES,) and path[2:3] in ((_MICRO_TAG,), (_MACRO_TAG,))
    return (*path[:2], *path[3:]) if tagged else path


def _keys_at(data: Data, path: KeyPath) -> Sequence[str]:
    """The keys that may stand in the mapping at a path of a file with this content."""
    steps = tuple(step for step in path if isinstance(step, str))
    tables = data.get(TABLES) if isinstance(data, dict) else None
    if steps[:1] == (TABLES,):
        top = _keys_of(tables.get(steps[1]) if isinstance(tables, dict) and len(steps) > 1 else None)
        steps = steps[2:]
    else:
        top = [*_Headed.model_fields, *(_EVERY_KEY if tables is not None else _keys_of(data)), TABLES]
    below = {
        "machines": list(Machine.model_fields),
        "benchmark": list(Benchmark.model_fields),
        "macro": list(Macro.model_fields),
    }
    return below.get(steps[0], top) if steps else top


def _keys_of(table: object) -> list[str]:
    return list((MacroMatrix if is_macro(table) else Matrix).model_fields)
