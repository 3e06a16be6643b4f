# SPDX-License-Identifier: GPL-2.0-only
"""Checks of a plan on this host before anything boots: CPUs, modules, points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.module_code import loaded_code, module_code
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.symbol_listing import grouped
from orchestrator.errors import ConfigError, HostError, LabError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.experiment import Experiment, NamedTable
from orchestrator.experiment.plan import Plan
from orchestrator.experiment.problems import Problem, TableOrigin, error_of_tables
from orchestrator.experiment.source import KeyPath
from orchestrator.experiment.table import ProbedTable
from orchestrator.guest.accelerator import check_cpu
from orchestrator.guest.qemu_facts import qemu_version
from orchestrator.probes.point import Point
from orchestrator.probes.point_check import functions_like, wrong_point_reason
from orchestrator.run.machines import timing_of

FindKernel = Callable[[str], Kernel | None]
"""A kernel by its name or path; None if it is not available now."""

_Answers = dict[tuple[str | None, str], dict[str, str | None]]
"""By a table's name and the checked name: why each kernel lacks it, None if it does not."""


def wrong_points(kernel: Kernel, cells: Sequence[Cell[Any]]) -> Mapping[str, str]:
    """Why the kernel lacks points that cells name, by cell id; empty if the kernel's code is not available."""
    named = [cell for cell in cells if cell.point is not None and cell.point.file is None]
    code = kernel.code if named else None  # 60 MB to read
    if code is None:
        return {}
    reason_of = cache(lambda point, modules: _reason(kernel, code, point, modules))
    reasons = {cell.id: reason_of(cell.point, cell.kernel_modules) for cell in named}
    return {id_: reason for id_, reason in reasons.items() if reason is not None}


def _reason(kernel: Kernel, code: KernelCode, point: Point, modules: Sequence[str]) -> str | None:
    """What is wrong with a point in the kernel itself, or in one of its own loaded modules."""
    symbol = point.symbol
    if code.has_function(symbol) or not modules:
        return wrong_point_reason(code, symbol, point.offset)
    kernel_codes = loaded_code(kernel, modules, symbol)
    reasons = {wrong_point_reason(kernel_code, symbol, point.offset) for kernel_code in kernel_codes.values()}
    # Every module has an init_module, and none can be probed.
    if len(kernel_codes) > 1 and (len(reasons) > 1 or None in reasons):
        return f"modules {', '.join(kernel_codes)} have a function {symbol} each: the name is ambiguous"
    if not kernel_codes:
        codes = [code, *map(module_code, loaded_files(kernel, modules).values())]
        names = functions_like(symbol, *codes)
        guess = f"; did you mean {' or '.join(names)}?" if names else ""
        return f"it has no function {symbol} of its own, nor have the modules that are loaded{guess}"
    module = next(iter(kernel_codes))
    if point.is_whole:
        return f"{symbol} is in module {module}: {point} is for functions of the kernel itself"
    return reasons.pop()


def check_points(experiment: Experiment, plan: Plan, find: FindKernel) -> list[str]:
    """Check the points of a plan's cells; returns the names of kernels for which this was impossible.

    A point is an error if none of its cells' kernels has it. If some have it, the other kernels' cells are refused
    during preparation. Raises ConfigError, which lists all wrong points.
    """
    answers: _Answers = {}
    unchecked: dict[str, None] = {}
    for boot in plan.boots:
        pointed = [(cell, cell.point) for cell in boot.cells if cell.point is not None]
        cells = [cell for cell, point in pointed if point.file is None and point.found_by is None]
        kernel = find(boot.guest.kernel) if cells else None
        name = boot.spec.name
        if cells and (kernel is None or kernel.code is None):
            unchecked[name] = None
        reasons = {} if kernel is None else wrong_points(kernel, cells)
        for cell, point in pointed:
            # If a kernel has the function, its cells are at the instructions, and no longer at SYMBOL+*.
            if point.file is None:
                answers.setdefault((cell.table, point.found_by or str(point)), {})[name] = reasons.get(cell.id)
    _refuse(experiment, answers, _key)
    return list(unchecked)


def _refuse(experiment: Experiment, answers: _Answers, key: Callable[[NamedTable, str], KeyPath]) -> None:
    problems = [
        (named_table.origin, Problem(key(named_table, what), _sentence(what, reasons)))
        for (table, what), reasons in answers.items()
        if None not in reasons.values()
        for named_table in experiment.tables
        if named_table.name == table
    ]
    if problems:
        raise error_of_tables(problems)


def _key(named: NamedTable, point: str) -> KeyPath:
    table = named.table
    if isinstance(table, ProbedTable) and isinstance(table.points, tuple) and point in table.points:
        return ("points", table.points.index(point))
    return ()


def _sentence(word: str, reasons: Mapping[str, str | None]) -> str:
    """The file's word, and each reason against it once with its kernels."""
    kernels = grouped((reason, kernel) for kernel, reason in reasons.items())
    return "; ".join([f"found '{word}'", *(f"{', '.join(names)}: {reason}" for reason, names in kernels.items())])


def check_modules(experiment: Experiment, plan: Plan, find: FindKernel) -> None:
    """Raise ConfigError that lists all modules that none of their cells' available kernels has."""
    answers: _Answers = {}
    for boot in plan.boots:
        kernel = find(boot.guest.kernel) if boot.kernel_modules else None
        for table in {cell.table for cell in boot.cells}:
            for name in boot.kernel_modules:
                reason = None if kernel is None else missing_module_reason(kernel, [name])
                answers.setdefault((table, name), {})[boot.spec.name] = reason
    _refuse(experiment, answers, lambda named, module: ("kernel_modules",))


def check_plan(experiment: Experiment, plan: Plan, find: FindKernel) -> list[str]:
    """Check a plan's CPUs, kernel modules and points; returns the kernels whose points could not be checked.

    Raises ConfigError that lists all wrong modules or points, and HostError for CPUs that this host cannot provide, or
    without a QEMU that is new enough.
    """
    _check_cpus(experiment, plan)
    check_modules(experiment, plan, find)
    return check_points(experiment, plan, find)


def _check_cpus(experiment: Experiment, plan: Plan) -> None:
    problems: list[tuple[TableOrigin | None, Problem]] = []
    errors: list[LabError] = []
    qemu_version()  # fails first if there is no QEMU
    for boot in {(boot.guest.cpu, boot.clock): boot for boot in plan.boots}.values():
        try:
            check_cpu(boot.guest.cpu_model, timing_of(boot.guest))
        except LabError as error:
            errors.append(error)
            for named in experiment.tables:
                machines = enumerate(named.table.machines if named.table.clock == boot.clock else ())
                keys = [("machines", index, "cpu") for index, machine in machines if machine.cpu == boot.guest.cpu]
                problems += [(named.origin, Problem(key, error.what)) for key in keys]
    if not errors:
        return
    config_error = error_of_tables(problems)
    kind = HostError if all(isinstance(error, HostError) for error in errors) else ConfigError
    raise kind(config_error.what, where=config_error.where, detail=config_error.detail, hint=errors[0].hint)
