# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own modules that an experiment names, checked before anything boots."""

from __future__ import annotations

from orchestrator.artifacts.module_files import missing_module_reason
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file.origin import error_of_tables
from orchestrator.experiment.file.problems import Problem
from orchestrator.experiment.plan import Plan
from orchestrator.run.point_check import FindKernel, found_sentence


def check_modules(experiment: Experiment, plan: Plan, find: FindKernel) -> None:
    """Raise ConfigError, which lists them all, for modules that none of their cells' kernels has.

    Where some kernel has one, the cells of the others are refused as they are prepared. Kernels that are not to be had
    now are not checked.
    """
    found: dict[tuple[str | None, str], dict[str, str | None]] = {}
    for boot in plan.boots:
        kernel = find(boot.kernel) if boot.kernel_modules else None
        for table in {cell.table for cell in boot.cells}:
            for name in boot.kernel_modules:
                reason = None if kernel is None else missing_module_reason(kernel, [name])
                found.setdefault((table, name), {})[kernel_spec(boot.kernel).name] = reason
    problems = []
    for (table, name), reasons in found.items():
        sentence = found_sentence(name, reasons)
        if sentence is not None:
            problems += [
                (one.origin, Problem(("kernel_modules",), sentence)) for one in experiment.tables if one.name == table
            ]
    if problems:
        raise error_of_tables(problems)
