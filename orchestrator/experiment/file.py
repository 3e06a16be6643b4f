# SPDX-License-Identifier: GPL-2.0-only
"""Load an experiment file: read it, apply overrides, and check every table, with all problems in one error."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from orchestrator.catalog.data import choices_sentence
from orchestrator.catalog.kernel_variants import SUFFIX
from orchestrator.catalog.kernels import placed
from orchestrator.catalog.probes import file_of, is_path, split_path, with_file, with_path
from orchestrator.catalog.written_recipe import WrittenRecipe
from orchestrator.errors import ConfigError
from orchestrator.experiment import fields
from orchestrator.experiment.experiment import TABLES, Experiment, Heading, NamedTable
from orchestrator.experiment.fields import QemuCpuNames, Strict, ValidationContext
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.experiment.kind_registry import KindRegistry
from orchestrator.experiment.problems import (
    DataOrigins,
    Problem,
    TableOrigin,
    apply_overrides,
    config_error,
    problems_of,
    shown,
)
from orchestrator.experiment.source import MAX_BYTES, Data, KeyPath, parse, read_source
from orchestrator.experiment.table import benchmark_keys
from orchestrator.experiment.table_kind import TableKind
from orchestrator.program import PROGRAM

_BENCHMARK = "benchmark"


@dataclass(frozen=True)
class _TableSource:
    """The data of a table before validation."""

    name: str | None
    kind: TableKind
    data: Data
    origin: TableOrigin


def _used(tables: Sequence[_TableSource]) -> set[KeyPath]:
    """The paths in the file of the tables' values and defaults."""
    places = [place for table in tables for place in table.origin.places.items()]
    return {place for inside, place in places if inside not in ((), (_BENCHMARK,))}


def _places(inside: KeyPath, at: KeyPath, value: Data) -> dict[KeyPath, KeyPath]:
    keys = value if isinstance(value, dict) else ()
    return {inside: at, **{(*inside, key): (*at, key) for key in keys}}


def _idle_overrides(
    defaults: Mapping[str, Data], tables: Sequence[_TableSource], origins: DataOrigins
) -> list[Problem]:
    used = _used(tables)
    first: dict[str, KeyPath] = {}
    taken: set[str] = set()  # an override of several values is idle only when all of them are
    for path in _leaves(dict(defaults), ()):
        if origins.overridden(path):
            place = origins.where(path)
            first.setdefault(place, path)
            if any(path[:end] in used for end in range(len(path) + 1)):
                taken.add(place)
    return [Problem(path, _idle(path, tables)) for place, path in first.items() if place not in taken]


def _unknown_benchmark_keys(defaults: Mapping[str, Data], tables: Sequence[_TableSource]) -> list[Problem]:
    used = _used(tables)  # a table checks the keys that it uses
    keys = list({key: None for table in tables for key in benchmark_keys(table.kind.table)})
    content = defaults.get(_BENCHMARK)
    unknown = [
        key
        for key in (content if isinstance(content, dict) else ())
        if key not in keys and (_BENCHMARK, key) not in used
    ]
    return [Problem((_BENCHMARK, key), _unknown((key,), keys)) for key in unknown]


def _idle(path: KeyPath, tables: Sequence[_TableSource]) -> str:
    if not any(_could_take(table, path) for table in tables):
        return "changes nothing: no benchmark of this file has this key"
    key = ".".join(str(step) for step in path if isinstance(step, str))
    example = f"{TABLES}.{tables[0].name}.{key}=..."
    return f"changes nothing, because every table has its own value; set each table's, as in {example}"


def _could_take(table: _TableSource, path: KeyPath) -> bool:
    key, *inner = path
    if key == _BENCHMARK and inner:
        return inner[0] in benchmark_keys(table.kind.table)
    return key in table.kind.table.model_fields


def _leaves(data: Data, path: KeyPath) -> Iterator[KeyPath]:
    items: list[tuple[str | int, Data]] = []
    if isinstance(data, dict | list):
        items = [*(data.items() if isinstance(data, dict) else enumerate(data))]
    for key, item in items:
        yield from _leaves(item, (*path, key))
    if not items:
        yield path


Moved = Callable[[str], str]
"""Maps a path that a user wrote to the one to read."""

LeftOut = Callable[[str], bool]
"""Whether the probe of a path to read is left out, as if the file did not name it."""


def none_left_out(_path: str) -> bool:
    """Leaves out no probe."""
    return False


def _benchmark_paths(data: Data, kinds: KindRegistry[TableKind]) -> Set[str]:
    """The keys of ``benchmark`` that are paths, of the kinds that the data names, and of the first."""
    benchmarks = [table.get(_BENCHMARK) for _, table in _tables_in(data)]
    named = [kinds.of_benchmark(chosen.get("name")) for chosen in benchmarks if isinstance(chosen, dict)]
    return {key for kind in (kinds.first, *named) if kind is not None for key in kind.paths}


def _make_absolute(data: Data, benchmark_paths: Set[str], paths: _Paths) -> None:
    """Make the relative paths of users' files absolute, in place: kernels, images, modules, workloads, libraries.

    Kernels, images, probes and the entries of lists among a benchmark's keys ``benchmark_paths`` are paths if they have
    a slash and are no one-liner; other values of these keys always are.
    """
    for path, table in _tables_in(data):
        probes = table.get("probes")
        if isinstance(probes, list):
            placed_probes = [paths.of_probe(name, (*path, "probes", index)) for index, name in enumerate(probes)]
            probes[:] = [name for name in placed_probes if not paths.is_left_out(name)]
        if "kernels" in table:
            table["kernels"] = paths.of_kernels(table["kernels"], (*path, "kernels"))
        options = table.get("options")
        if isinstance(options, list):
            options[:] = [paths.of_options(option, (*path, "options", index)) for index, option in enumerate(options)]
        if "image" in table:
            table["image"] = paths.of_name(table["image"], (*path, "image"))
        kernel_for, benchmark = table.get("kernel_for"), table.get(_BENCHMARK)
        if isinstance(kernel_for, dict):
            of_rows: dict[str, Data] = {}
            for key, kernel in kernel_for.items():
                at = (*path, "kernel_for", key)
                of_rows[str(paths.of_probe(key, at))] = paths.of_kernel(kernel, at)
            table["kernel_for"] = {row: kernel for row, kernel in of_rows.items() if not paths.is_left_out(row)}
        if isinstance(benchmark, dict):
            for key in benchmark_paths & benchmark.keys():
                benchmark[key] = paths.of_value(benchmark[key], (*path, _BENCHMARK, key))


def _file_of(name: Data) -> str | None:
    """The path in a probe's name; None for a wrong command, which the probe's check refuses with its place."""
    try:
        return file_of(name) if isinstance(name, str) else None
    except ConfigError:
        return None


@dataclass(frozen=True)
class _Paths:
    """How the paths of an experiment are read: relative ones are in ``folder``, the file's."""

    origins: DataOrigins
    folder: Path
    moved: Moved
    left_out: LeftOut = none_left_out

    def is_left_out(self, name: Data) -> bool:
        file = _file_of(name)
        return file is not None and self.left_out(file)

    def of_value(self, value: Data, path: KeyPath) -> Data:
        if isinstance(value, list):
            return [self.of_name(name, (*path, index)) for index, name in enumerate(value)]
        return self.of_file(value, path)

    def of_file(self, name: Data, path: KeyPath) -> Data:
        if not isinstance(name, str):
            return name
        if name.startswith("~"):
            return self.moved(name)
        return self.moved(str((Path.cwd() if self.origins.overridden(path) else self.folder) / name))

    def of_name(self, name: Data, path: KeyPath) -> Data:
        """A catalogue name unchanged, or a path made absolute, with the parameters that follow it."""
        if not isinstance(name, str) or not is_path(name):
            return name
        file, parameters = split_path(name)
        return with_path(str(self.of_file(file, path)), parameters)

    def of_probe(self, name: Data, path: KeyPath) -> Data:
        """The same of a probe, which may be a tool that is the user's file, or a script."""
        file = _file_of(name)
        return name if file is None else with_file(str(name), str(self.of_file(file, path)))

    def of_options(self, option: Data, path: KeyPath) -> Data:
        return self.of_file(option, path) if isinstance(option, str) and option.endswith(SUFFIX) else option

    def of_kernel(self, name: Data, path: KeyPath) -> Data:
        if not isinstance(name, str):
            return name
        return placed(name, lambda file: str(self.of_file(file, path)))

    def of_kernels(self, names: Data, path: KeyPath) -> Data:
        """A list of kernels; a mapping of names to paths becomes entries ``NAME=PATH``, within a list as well."""
        if isinstance(names, dict) and names and all(isinstance(name, str) and "/" in name for name in names.values()):
            return [self.of_kernel(f"{name}={file}", (*path, name)) for name, file in names.items()]
        if not isinstance(names, list):
            return names
        entries: list[Data] = []
        for index, name in enumerate(names):
            nested = self.of_kernels(name, (*path, index)) if isinstance(name, dict) else None
            entries += nested if isinstance(nested, list) else [self.of_kernel(name, (*path, index))]
        return entries


def _tables_in(data: Data) -> Iterator[tuple[KeyPath, dict[str, Data]]]:
    if not isinstance(data, dict):
        return
    yield (), data
    tables = data.get(TABLES)
    if isinstance(tables, dict):
        yield from (((TABLES, name), table) for name, table in tables.items() if isinstance(table, dict))


MAX_TABLES = 100

StrictT = TypeVar("StrictT", bound=Strict)


def load_experiment(
    path: Path,
    kinds: KindRegistry[TableKind],
    overrides: Sequence[str] = (),
    qemu_cpu_names: QemuCpuNames | None = None,
    moved: Moved = str,
    left_out: LeftOut = none_left_out,
) -> Experiment:
    """Load an experiment file, apply ``KEY=VALUE`` overrides, and check everything.

    ``qemu_cpu_names`` is called only for a CPU that the catalogue lacks. ``moved`` maps the paths of the file, and
    probes that are ``left_out`` are no rows.

    Raises ConfigError, which lists every problem: place, key, what was found, what is allowed.
    """
    source = read_source(path)
    origins = DataOrigins({key: f"{path}:{line}" for key, line in source.lines.items()})
    data = apply_overrides(source.data, overrides, origins)
    paths = _Paths(origins, path.parent.absolute(), moved, left_out)
    _make_absolute(data, _benchmark_paths(data, kinds), paths)
    return _checked(data, origins, str(path), kinds, qemu_cpu_names)


BUILT = "the experiment"
"""The place of an error in an experiment that is no file."""
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def built_experiment(
    content: Mapping[str, Any],
    kinds: KindRegistry[TableKind],
    qemu_cpu_names: QemuCpuNames | None = None,
    moved: Moved = str,
) -> Experiment:
    """An experiment of a program: ``content`` is what a file would have; relative paths are from the current folder.

    The limits of a file are its limits. Raises ConfigError as ``load_experiment`` does.
    """
    try:
        text = json.dumps(content, default=lambda path: str(Path(os.fspath(path)).absolute()), ensure_ascii=False)
        # YAML has a line break or nothing here. It knows JSON's escapes, but not two of them for one character.
        text = _NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"expected text, numbers, lists and mappings: {error}", where=BUILT) from None
    if size > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES // 1024} KiB", where=BUILT)
    source = parse(text, lambda line: BUILT)
    origins = DataOrigins(dict.fromkeys(source.lines, BUILT))
    _make_absolute(source.data, _benchmark_paths(source.data, kinds), _Paths(origins, Path.cwd(), moved))
    return _checked(source.data, origins, BUILT, kinds, qemu_cpu_names)


def _checked(
    data: Data, origins: DataOrigins, name: str, kinds: KindRegistry[TableKind], qemu_cpu_names: QemuCpuNames | None
) -> Experiment:
    context = ValidationContext(qemu_cpu_names, kinds.benchmarks, kinds.rows)
    checked = _Loader(kinds, context, origins, name).load(data)
    if isinstance(checked, Experiment):
        return checked
    raise config_error(list(dict.fromkeys(checked)), origins, name)


@dataclass(frozen=True)
class _Loader:
    kinds: KindRegistry[TableKind]
    context: ValidationContext
    origins: DataOrigins
    file: str

    def load(self, data: Data) -> Experiment | list[Problem]:
        if not isinstance(data, dict):
            return [Problem((), f"found {shown(data)}; expected keys with values, such as name: my-probes")]
        if data.keys() & WrittenRecipe.model_fields.keys() and not data.keys() & set(self._every_key()):
            one_guest = f"{PROGRAM} exec --image ./mine.yaml -- COMMAND"
            hint = f"name it in an experiment, image: ./mine.yaml; for one guest: {one_guest}"
            raise ConfigError("this is an image recipe, not an experiment", where=self.file, hint=hint)
        heading_data = {key: value for key, value in data.items() if key in Heading.model_fields}
        rest = {key: value for key, value in data.items() if key not in Heading.model_fields}
        problems: list[Problem] = []
        if TABLES not in data:
            sources = [self._source(None, rest, (), {})]
        else:
            tables = data[TABLES]
            if not isinstance(tables, dict) or not 1 <= len(tables) <= MAX_TABLES:
                described = f"{len(tables)} tables" if isinstance(tables, dict) else shown(tables)
                sentence = f"found {described}; expected a mapping of 1 to {MAX_TABLES} tables by name"
                return [Problem((TABLES,), sentence)]
            known = {key for key in rest if key != TABLES and self.kinds.has_key(key)}
            heading_data |= {key: value for key, value in rest.items() if key not in known and key != TABLES}
            defaults = {key: value for key, value in rest.items() if key in known}
            sources = [self._source(name, content, (TABLES, name), defaults) for name, content in tables.items()]
            idle = _idle_overrides(defaults, sources, self.origins)
            if idle:
                return idle
            for name in tables:
                try:
                    fields.name(name)
                except ValueError as error:
                    problems.append(Problem((TABLES, name), str(error)))
            problems += _unknown_benchmark_keys(defaults, sources)
        heading, of_heading = self._checked(Heading, heading_data, lambda path: self._unknown(path, self._every_key()))
        named = [self._table(source, problems) for source in sources]
        if heading is None or problems:
            return [*of_heading, *problems]
        return Experiment(heading, [table for table in named if table is not None])

    def _every_key(self) -> Sequence[str]:
        return (*Heading.model_fields, *self.kinds.table_keys, TABLES)

    def _source(self, name: str | None, content: Data, path: KeyPath, defaults: Mapping[str, Data]) -> _TableSource:
        """The data of a table: its values over the defaults, mappings merged key by key with the keys of its kind."""
        places: dict[KeyPath, KeyPath] = {(): path}
        if not isinstance(content, dict):
            return _TableSource(name, self.kinds.first, content, TableOrigin(self.file, self.origins, places))
        kind = self._kind(content, defaults)
        merged: dict[str, Data] = {}
        for key, value in defaults.items():
            if _BENCHMARK in content and key == _BENCHMARK and isinstance(value, dict):
                is_same = self.kinds.of_benchmark(value.get("name")) is kind
                known = benchmark_keys(kind.table).keys() - {"name"}
                value = {inner: one for inner, one in value.items() if is_same or inner in known}
            if _BENCHMARK not in content or key in kind.table.model_fields:
                merged[key] = value
                places |= _places((key,), (key,), value)
        for key, value in content.items():
            default = merged.get(key)
            if key == _BENCHMARK and not isinstance(default, dict | None):
                continue  # the default is reported as wrong
            places |= _places((key,), (*path, key), value)
            merged[key] = {**default, **value} if isinstance(default, dict) and isinstance(value, dict) else value
        if merged.get(_BENCHMARK, "") is None:
            del merged[_BENCHMARK]  # report it as missing
        return _TableSource(name, kind, merged, TableOrigin(self.file, self.origins, places))

    def _kind(self, content: Mapping[str, Data], defaults: Mapping[str, Data]) -> TableKind:
        for benchmark in (content.get(_BENCHMARK), defaults.get(_BENCHMARK)):
            kind = self.kinds.of_benchmark(benchmark.get("name")) if isinstance(benchmark, dict) else None
            if kind is not None:
                return kind
        return self.kinds.first

    def _table(self, source: _TableSource, problems: list[Problem]) -> NamedTable | None:
        table, wrong = self._checked(source.kind.table, source.data, lambda path: self._unknown_in(source, path))
        problems += map(source.origin.placed, wrong)
        return None if table is None else NamedTable(source.name, source.kind, table.with_variants(), source.origin)

    def _unknown_in(self, source: _TableSource, path: KeyPath) -> str:
        keys = source.kind.table.model_fields
        if path[0] == _BENCHMARK and len(path) > 1:
            benchmark = source.data.get(_BENCHMARK) if isinstance(source.data, dict) else None
            name = benchmark.get("name") if isinstance(benchmark, dict) else None
            if self.kinds.of_benchmark(name) and any(path[1] in benchmark_keys(kind.table) for kind in self.kinds):
                return f"benchmark '{name}' does not have this key; leave it out"
            return _unknown(path, tuple(benchmark_keys(source.kind.table)))
        if path[0] == "machines" and len(path) > 1:
            return _unknown(path, tuple(MachineSpec.model_fields))
        return self._unknown(path, tuple(keys) if source.name is not None else (*Heading.model_fields, *keys, TABLES))

    def _unknown(self, path: KeyPath, allowed: Sequence[str]) -> str:
        """The message for an unknown key; one of ``benchmark`` belongs one level below."""
        key = str(path[-1])
        if key != "name" and any(key in benchmark_keys(kind.table) for kind in self.kinds):
            return f"it is a key of '{_BENCHMARK}', not beside it; write {_BENCHMARK}: {{name: ..., {key}: ...}}"
        return _unknown(path, allowed)

    def _checked(
        self, model: type[StrictT], data: Data, unknown: Callable[[KeyPath], str]
    ) -> tuple[StrictT | None, list[Problem]]:
        try:
            return model.model_validate(data, context=self.context), []
        except ValidationError as error:
            return None, problems_of(error, unknown)


def _unknown(path: KeyPath, allowed: Sequence[str]) -> str:
    return f"unknown key; {choices_sentence(str(path[-1]), allowed)}"
