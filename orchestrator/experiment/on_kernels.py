# SPDX-License-Identifier: GPL-2.0-only
"""An experiment on other kernels than its file names, as ``diff --config`` measures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.user_kernel import is_path, placed
from orchestrator.errors import UsageError
from orchestrator.experiment.experiment import Experiment, NamedTable
from orchestrator.experiment.file.origin import error_of_tables
from orchestrator.experiment.table import Table
from orchestrator.paths import user_path


def on_kernels(experiment: Experiment, names: Sequence[str]) -> Experiment:
    """The experiment whose tables have all of their cells on each of these kernels, whatever ``kernel_for`` says.

    A kernel is a catalogue's name, or the path of a user's. Raises ConfigError for one that is not there or cannot run
    a table's machines, UsageError where two names are one kernel.
    """
    kernels = tuple(map(kernel_name, names))
    known: dict[str, str] = {}
    for given, name in zip(names, kernels, strict=True):
        other = known.setdefault(kernel_spec(name).name, given)
        if other != given or kernels.count(name) > 1:
            raise UsageError(f"{' and '.join(names)} are the same kernel", hint="name two different ones")
    tables = [_changed(one, kernels) for one in experiment.tables]
    problems = [(one.origin, problem) for one in tables for problem in one.table.conflicts()]
    if problems:
        raise error_of_tables(problems)
    return replace(experiment, tables=tables)


def kernel_name(name: str) -> str:
    """A kernel's name as tables have it: paths, which are relative to the current folder, are absolute."""
    return placed(name, lambda path: str(user_path(path))) if is_path(name) else name


def _changed(one: NamedTable, kernels: tuple[str, ...]) -> NamedTable:
    table: Table = one.table.model_copy(update={"kernels": kernels, "kernel_for": {}})
    return replace(one, table=table)
