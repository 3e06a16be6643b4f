# SPDX-License-Identifier: GPL-2.0-only
"""Which file a relative path means: one in an experiment begins at its folder, one on the command line here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.experiment.file.defaults import TABLES
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.source import Data, KeyPath


def make_absolute(data: Data, origins: Origins, folder: Path) -> None:
    """Make every relative path of the user's own absolute, in place: kernels, images, modules and workloads.

    Kernels, images and probes are paths where they have a slash in them; ``folder`` is the file's.
    """

    def absolute(name: Data, path: KeyPath, *, always: bool = False) -> Data:
        if not isinstance(name, str) or not (always or "/" in name) or name.startswith("~"):
            return name
        return str((Path.cwd() if origins.overridden(path) else folder) / name)

    for path, holder in _matrices(data):
        for key in ("kernels", "probes"):
            names = holder.get(key)
            if isinstance(names, list):
                names[:] = [absolute(name, (*path, key, index)) for index, name in enumerate(names)]
        if "image" in holder:
            holder["image"] = absolute(holder["image"], (*path, "image"))
        kernel_for, benchmark = holder.get("kernel_for"), holder.get("benchmark")
        if isinstance(kernel_for, dict):
            holder["kernel_for"] = {
                str(absolute(probe, (*path, "kernel_for", probe))): absolute(name, (*path, "kernel_for", probe))
                for probe, name in kernel_for.items()
            }
        if isinstance(benchmark, dict) and "file" in benchmark:
            benchmark["file"] = absolute(benchmark["file"], (*path, "benchmark", "file"), always=True)


def _matrices(data: Data) -> Iterator[tuple[KeyPath, dict[str, Data]]]:
    if not isinstance(data, dict):
        return
    yield (), data
    tables = data.get(TABLES)
    if isinstance(tables, dict):
        yield from (((TABLES, name), table) for name, table in tables.items() if isinstance(table, dict))
