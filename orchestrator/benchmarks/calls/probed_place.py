# SPDX-License-Identifier: GPL-2.0-only
"""The place that a cell probes: a function, and the offset of its own first instruction or of the tracer's site."""

from __future__ import annotations

from orchestrator.artifacts.function_entry import entry_offset, tracer_place
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_code import loaded_code
from orchestrator.benchmarks.calls.entered_function import entered_function
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.catalog.probes import ProbeKind
from orchestrator.experiment.program_point import in_program


def probed_place(kernel: Kernel, cell: CallCell, kind: ProbeKind) -> tuple[str, int]:
    """The symbol, and the offset in bytes. Raises UnknownDispatchError where the function is not known."""
    place = in_program(cell.task.point)
    if place is not None:
        return place.symbol, place.offset
    if cell.task.point is not None:
        symbol, plus, offset = cell.task.point.partition("+")
        if plus:
            return symbol, int(offset, 0)
    else:
        symbol = entered_function(kernel, cell)
    entry = own_entry(kernel, cell, symbol)
    return symbol, entry if kind.at == "after-ftrace-nop" else tracer_place(entry)


def own_entry(kernel: Kernel, cell: CallCell, symbol: str) -> int:
    """Bytes from a function's symbol to its first own instruction: the kernel's, or a loaded module's of its own."""
    code = code_with(kernel, cell, symbol)
    found = entry_offset(code, symbol) if code is not None and code.is_module else None
    return kernel.entry_offset(symbol) if found is None else found


def code_with(kernel: Kernel, cell: CallCell, symbol: str) -> KernelCode | None:
    """The code that has a function: the kernel's, or a loaded module's where only that has it."""
    if kernel.code is not None and kernel.code.has_function(symbol):
        return kernel.code
    return next(iter(loaded_code(kernel, cell.kernel_modules, symbol).values()), kernel.code)
