# SPDX-License-Identifier: GPL-2.0-only
"""A job as it travels to a worker: with the inputs of its cells, and what a worker has no means to make."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.counting_plugin import counting_plugin
from orchestrator.errors import LabError
from orchestrator.fleet.parcel import Parcel, packed
from orchestrator.run.crew import Job


def packed_job(context: BuildContext, job: Job) -> Parcel:
    """A job's task and its artifacts. Raises OSError where a file cannot be read, HostError where one was removed."""
    wanted = {cell.id for cell in job.task.cells}
    artifacts = dataclasses.replace(
        job.artifacts,
        cells={id_: one for id_, one in job.artifacts.cells.items() if id_ in wanted},
        plugin=_plugin(context) if job.task.boot.clock == "instructions" else None,
    )
    return packed((job.task, artifacts), context.cache.root, _code_files(job))


def _plugin(context: BuildContext) -> Path | None:
    """What counts instructions where a failure has to be explained; a worker has no compiler."""
    try:
        return counting_plugin(context)
    except LabError:
        return None  # the explanation says what it lacks


def _code_files(job: Job) -> Iterable[Path]:
    """The kernel's image and list of symbols, which are found in its folder by their names."""
    kernel = job.artifacts.kernel
    folder = kernel.code_folder or kernel.headers
    return [file for file in (folder / "vmlinux", folder / "System.map") if file.is_file()]
