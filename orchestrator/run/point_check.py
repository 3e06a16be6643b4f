# SPDX-License-Identifier: GPL-2.0-only
"""The probe points that an experiment names, checked before anything boots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_code import loaded_code, module_code
from orchestrator.artifacts.module_files import loaded_files
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.experiment.cell import Cell, is_found, kernel_point, whole_function
from orchestrator.experiment.experiment import Experiment, NamedTable
from orchestrator.experiment.file.origin import error_of_tables
from orchestrator.experiment.file.problems import Problem
from orchestrator.experiment.file.source import KeyPath
from orchestrator.experiment.plan import Plan
from orchestrator.experiment.table import ProbedTable
from orchestrator.probes.static_point import functions_like, wrong_point_reason

FindKernel = Callable[[str], Kernel | None]
"""A kernel by its name or path; None where it is not to be had now."""


def wrong_points(kernel: Kernel, cells: Sequence[Cell[Any]]) -> Mapping[str, str]:
    """Why the kernel lacks the points that cells name, by the cells' ids; nothing where its code is not at hand."""
    named = [(cell.id, point, cell.kernel_modules) for cell in cells if (point := kernel_point(cell)) is not None]
    code = kernel.code if named else None  # 60 MB to read
    if code is None:
        return {}
    found: dict[str, str] = {}
    reasons: dict[str, str | None] = {}
    for cell_id, point, modules in named:
        if point not in reasons:
            reasons[point] = _reason(kernel, code, point, modules)
        reason = reasons[point]
        if reason is not None:
            found[cell_id] = reason
    return found


def _reason(kernel: Kernel, code: KernelCode, point: str, modules: Sequence[str]) -> str | None:
    """What is wrong with a point in the kernel itself, or in one of its own modules that are loaded."""
    symbol, plus, offset = (whole_function(point) or point).partition("+")
    place = int(offset, 0) if plus else None
    if code.has_function(symbol) or not modules:
        return wrong_point_reason(code, symbol, place)
    found = loaded_code(kernel, modules, symbol)
    reasons = {wrong_point_reason(one, symbol, place) for one in found.values()}
    # Each has an init_module, and none of them can be probed.
    if len(found) > 1 and (len(reasons) > 1 or None in reasons):
        return f"modules {', '.join(found)} have a function {symbol} each: which one is meant is not known"
    if not found:
        codes = [code, *map(module_code, loaded_files(kernel, modules).values())]
        names = functions_like(symbol, *codes)
        guess = f"; did you mean {' or '.join(names)}?" if names else ""
        return f"it has no function {symbol} of its own, nor have the modules that are loaded{guess}"
    module = next(iter(found))
    if whole_function(point) is not None:
        return f"{symbol} is in module {module}: {point} is for functions of the kernel itself"
    return reasons.pop()


def check_points(experiment: Experiment, plan: Plan, find: FindKernel) -> list[str]:
    """Check the points of a plan's cells; the names of kernels that this was not possible for.

    A point is an error where none of its cells' kernels has it. Where some have it, the cells of the others are refused
    as they are prepared. Raises ConfigError, which lists all points that are wrong.
    """
    found: dict[tuple[str | None, str], dict[str, str | None]] = {}
    unchecked: dict[str, None] = {}
    for boot in plan.boots:
        cells = [cell for cell in boot.cells if kernel_point(cell) is not None and not is_found(cell)]
        kernel = find(boot.kernel) if cells else None
        name = kernel_spec(boot.kernel).name
        if cells and (kernel is None or kernel.code is None):
            unchecked[name] = None
        reasons = {} if kernel is None else wrong_points(kernel, cells)
        for cell in cells:
            found.setdefault((cell.table, kernel_point(cell) or ""), {})[name] = reasons.get(cell.id)
        # Where a kernel has the function, its cells are at the instructions, and no longer at SYMBOL+*.
        for cell in filter(is_found, boot.cells):
            found.setdefault((cell.table, str(cell.parameters["points"])), {})[name] = None
    problems = []
    for (table, point), reasons_by_kernel in found.items():
        sentence = found_sentence(point, reasons_by_kernel)
        if sentence is not None:
            problems += [
                (one.origin, Problem(_key(one, point), sentence)) for one in experiment.tables if one.name == table
            ]
    if problems:
        raise error_of_tables(problems)
    return list(unchecked)


def _key(named: NamedTable, point: str) -> KeyPath:
    table = named.table
    if isinstance(table, ProbedTable) and isinstance(table.points, tuple) and point in table.points:
        return ("points", table.points.index(point))
    return ()


def found_sentence(found: str, reasons: Mapping[str, str | None]) -> str | None:
    """What the file has, and each reason against it once, with its kernels; None where a kernel has none."""
    kernels: dict[str, list[str]] = {}
    for kernel, reason in reasons.items():
        if reason is None:
            return None
        kernels.setdefault(reason, []).append(kernel)
    return "; ".join([f"found '{found}'", *(f"{', '.join(names)}: {reason}" for reason, names in kernels.items())])
