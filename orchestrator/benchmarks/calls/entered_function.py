# SPDX-License-Identifier: GPL-2.0-only
"""The function of the kernel that a cell's system call enters."""

from __future__ import annotations

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.system_call_dispatch import UnknownDispatchError, dispatched
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.catalog.system_calls import system_calls

_NOT_IMPLEMENTED = "_ni_syscall"
"""The end of the name of the function that numbers without a call of their own go to."""


def call_number(kernel: Kernel, cell: CallCell) -> int | None:
    """The number of the system call that the cell makes; None where it makes none or this kernel lacks it."""
    return None if cell.task.call is None else system_calls()[cell.task.call].number(kernel.spec.arch, cell.task.entry)


def entered_function(kernel: Kernel, cell: CallCell) -> str:
    """The function that the cell's system call enters, by the benchmark or by the kernel's own dispatch.

    Raises UnknownDispatchError where that cannot be read.
    """
    number, arch = call_number(kernel, cell), kernel.spec.arch
    assert number is not None
    symbols = benchmarks()[cell.benchmark].symbols
    if symbols:
        return symbols[arch][cell.task.entry]
    if kernel.code is None:
        raise UnknownDispatchError("the kernel's vmlinux and System.map are not at hand")
    return dispatched(kernel.code, "i386" if cell.task.entry == "int80" else arch, number)


def no_function_reason(kernel: Kernel, cell: CallCell) -> str | None:
    """Why the cell's system call enters no known function of its own; None where it does."""
    call = f"{cell.task.call} (number {call_number(kernel, cell)})"
    try:
        function = entered_function(kernel, cell)
    except UnknownDispatchError as error:
        return f"which function {call} enters is not known, since {error}; name it, with points: [...]"
    if function.endswith(_NOT_IMPLEMENTED):
        return f"this kernel has no system call {call}: it goes to {function}"
    return None
