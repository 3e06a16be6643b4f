# SPDX-License-Identifier: GPL-2.0-only
"""The folder of a relative path: the file's in an experiment, the current one on the command line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.given_parameters import split_path, with_path
from orchestrator.catalog.user_kernel import is_path as is_kernel_path
from orchestrator.catalog.user_kernel import placed
from orchestrator.catalog.user_probe import is_path
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.source import Data, KeyPath
from orchestrator.experiment.file.table_source import BENCHMARK, TABLES

Moved = Callable[[str], str]
"""Where something is that a user named by a path."""


def as_written(path: str) -> str:
    """It is where the user says."""
    return path


def make_absolute(
    data: Data, origins: Origins, folder: Path, benchmark_paths: Collection[str], moved: Moved = as_written
) -> None:
    """Make every relative path of a user's file absolute, in place: kernels, images, modules, workloads, libraries.

    Kernels, images and probes are paths where they have a slash in them and are no one-liner, as do entries of lists
    among the keys ``benchmark_paths`` of a benchmark; their other values always. ``folder`` is the experiment file's.
    """
    paths = _Paths(origins, folder, moved)
    for path, table in _tables_in(data):
        probes = table.get("probes")
        if isinstance(probes, list):
            probes[:] = [paths.of_name(name, (*path, "probes", index)) for index, name in enumerate(probes)]
        if "kernels" in table:
            table["kernels"] = paths.of_kernels(table["kernels"], (*path, "kernels"))
        if "image" in table:
            table["image"] = paths.of_name(table["image"], (*path, "image"))
        kernel_for, benchmark = table.get("kernel_for"), table.get(BENCHMARK)
        if isinstance(kernel_for, dict):
            table["kernel_for"] = paths.of_mapping(kernel_for, (*path, "kernel_for"))
        if isinstance(benchmark, dict):
            for key in benchmark_paths & benchmark.keys():
                benchmark[key] = paths.of_value(benchmark[key], (*path, BENCHMARK, key))


@dataclass(frozen=True)
class _Paths:
    origins: Origins
    folder: Path
    moved: Moved

    def of_value(self, value: Data, path: KeyPath) -> Data:
        """A file's path, absolute; of a list, those entries that are paths."""
        if isinstance(value, list):
            return [self.of_name(name, (*path, index)) for index, name in enumerate(value)]
        return self.of_file(value, path)

    def of_file(self, name: Data, path: KeyPath) -> Data:
        """A file's path, absolute; ``path`` is the key's."""
        if not isinstance(name, str):
            return name
        if name.startswith("~"):
            return self.moved(name)
        return self.moved(str((Path.cwd() if self.origins.overridden(path) else self.folder) / name))

    def of_name(self, name: Data, path: KeyPath) -> Data:
        """A catalogue's name unchanged, or a path made absolute, with the parameters that may stand behind it."""
        if not isinstance(name, str) or not is_path(name):
            return name
        file, parameters = split_path(name)
        return with_path(str(self.of_file(file, path)), parameters)

    def of_kernel(self, name: Data, path: KeyPath) -> Data:
        """A kernel's name, or the path of one of the user's own, which may have a name, absolute."""
        if not isinstance(name, str) or not is_kernel_path(name):
            return name
        return placed(name, lambda file: str(self.of_file(file, path)))

    def of_kernels(self, names: Data, path: KeyPath) -> Data:
        """A list of kernels; a mapping of names to the user's own, or one in the list, becomes entries of it."""
        if isinstance(names, dict) and names and all(isinstance(one, str) and "/" in one for one in names.values()):
            return [self.of_kernel(f"{name}={file}", (*path, name)) for name, file in names.items()]
        if not isinstance(names, list):
            return names
        entries: list[Data] = []
        for index, one in enumerate(names):
            found = self.of_kernels(one, (*path, index)) if isinstance(one, dict) else None
            entries += found if isinstance(found, list) else [self.of_kernel(one, (*path, index))]
        return entries

    def of_mapping(self, names: dict[str, Data], path: KeyPath) -> dict[str, Data]:
        """Kernels by probes: keys and values that are names or paths."""
        return {
            str(self.of_name(key, (*path, key))): self.of_kernel(value, (*path, key)) for key, value in names.items()
        }


def _tables_in(data: Data) -> Iterator[tuple[KeyPath, dict[str, Data]]]:
    """The mappings that are a table or the defaults of tables, with their paths."""
    if not isinstance(data, dict):
        return
    yield (), data
    tables = data.get(TABLES)
    if isinstance(tables, dict):
        yield from (((TABLES, name), table) for name, table in tables.items() if isinstance(table, dict))
