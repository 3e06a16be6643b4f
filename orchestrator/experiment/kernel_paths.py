# SPDX-License-Identifier: GPL-2.0-only
"""Which kernel a relative path means: one in a file begins at that file's folder, one on the command line here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.catalog.own_kernel import is_path
from orchestrator.experiment.defaults import TABLES
from orchestrator.experiment.overrides import Origins
from orchestrator.experiment.source import Data, KeyPath


def make_absolute(data: Data, origins: Origins, folder: Path) -> None:
    """Replace, in place, every relative path of a kernel by the absolute one; ``folder`` is the file's."""
    for path, holder in _matrices(data):
        kernels, kernel_for = holder.get("kernels"), holder.get("kernel_for")
        if isinstance(kernels, list):
            for index, name in enumerate(kernels):
                kernels[index] = _absolute(name, (*path, "kernels", index), origins, folder)
        if isinstance(kernel_for, dict):
            for probe, name in kernel_for.items():
                kernel_for[probe] = _absolute(name, (*path, "kernel_for", probe), origins, folder)


def _matrices(data: Data) -> Iterator[tuple[KeyPath, dict[str, Data]]]:
    if not isinstance(data, dict):
        return
    yield (), data
    tables = data.get(TABLES)
    if isinstance(tables, dict):
        yield from (((TABLES, name), table) for name, table in tables.items() if isinstance(table, dict))


def _absolute(name: Data, path: KeyPath, origins: Origins, folder: Path) -> Data:
    if not isinstance(name, str) or not is_path(name) or name.startswith("~"):
        return name
    return str((Path.cwd() if origins.overridden(path) else folder) / name)
