# SPDX-License-Identifier: GPL-2.0-only
"""Which file a relative path means: one in an experiment begins at its folder, one on the command line here."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from orchestrator.experiment.file.aliases import BENCHMARK, tables_in
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.source import Data, KeyPath


def make_absolute(data: Data, origins: Origins, folder: Path, benchmark_paths: Collection[str]) -> None:
    """Make every relative path of the user's own absolute, in place: kernels, images, modules and workloads.

    Kernels, images and probes are paths where they have a slash in them, the keys ``benchmark_paths`` of a benchmark
    always; ``folder`` is the file's.
    """

    def absolute(name: Data, path: KeyPath) -> Data:
        if not isinstance(name, str) or name.startswith("~"):
            return name
        return str((Path.cwd() if origins.overridden(path) else folder) / name)

    def absolute_path(name: Data, path: KeyPath) -> Data:
        return absolute(name, path) if isinstance(name, str) and "/" in name else name

    def kernels(kernel_for: dict[str, Data], path: KeyPath) -> dict[str, Data]:
        return {
            str(absolute_path(key, (*path, key))): absolute_path(name, (*path, key)) for key, name in kernel_for.items()
        }

    for path, holder in tables_in(data):
        for key in ("kernels", "probes"):
            names = holder.get(key)
            if isinstance(names, list):
                names[:] = [absolute_path(name, (*path, key, index)) for index, name in enumerate(names)]
        if "image" in holder:
            holder["image"] = absolute_path(holder["image"], (*path, "image"))
        kernel_for = holder.get("kernel_for")
        if isinstance(kernel_for, dict):
            holder["kernel_for"] = kernels(kernel_for, (*path, "kernel_for"))
        benchmark = holder.get(BENCHMARK)
        if isinstance(benchmark, dict):
            for key in benchmark_paths & benchmark.keys():
                benchmark[key] = absolute(benchmark[key], (*path, BENCHMARK, key))
