# SPDX-License-Identifier: GPL-2.0-only
"""Is the function that a system call's name is probed at the one that the kernel dispatches its number to?"""

from __future__ import annotations

import re

import pytest
from elsewhere import ELSEWHERE

from orchestrator.arch import Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.dispatch import dispatched
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.benchmarks.calls.benchmarks import Entry
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.system_calls import system_calls

KERNEL = "lab-i386-up"

pytestmark = pytest.mark.guest(kernel=KERNEL, timing="instructions")

_TABLE_ENTRY = re.compile(r"__SYSCALL(?:_WITH_COMPAT|_NORETURN)?\((\d+), (\w+)(?:, (\w+))?\)")

KERNELS = [
    KERNEL,
    pytest.param("debian-686", marks=ELSEWHERE),
    "debian-amd64",
    *(
        pytest.param(name, marks=pytest.mark.kernels(name))
        for name in ("lab-i386-smp-preempt", "lab-x86_64-smp", "lab-x86_64-smp-preempt", "lab-x86_64-smp-ibt-ftrace")
    ),
]


def built_from(kernel: Kernel, numbers: Arch) -> dict[int, str]:
    """The functions by number in the table that the kernel was built from."""
    name = "syscalls_64.h" if numbers == "x86_64" else "syscalls_32.h"
    prefix = "__x64_" if numbers == "x86_64" else "__ia32_"
    is_compat = numbers == "i386" and kernel.spec.arch == "x86_64"
    table = (kernel.headers / "arch/x86/include/generated/asm" / name).read_text()
    return {
        int(entry[1]): prefix + (entry[3] if is_compat and entry[3] else entry[2])
        for entry in _TABLE_ENTRY.finditer(table)
    }


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_number_of_the_catalogue(workshop: BuildContext, kernel: str) -> None:
    """What the kernel's image dispatches to is what its source's table says, for each entry of its architecture."""
    made = ready_kernel(workshop, kernels()[kernel])
    code = made.code
    assert code is not None
    entries: tuple[Entry, ...] = ("auto", "int80")
    for entry in entries:
        numbers: Arch = "i386" if entry == "int80" else made.spec.arch
        expected = built_from(made, numbers)
        known = {call.name: call.number(made.spec.arch, entry) for call in system_calls().values()}
        found = {name: dispatched(code, numbers, number) for name, number in known.items() if number is not None}
        nothing = "__x64_sys_ni_syscall" if numbers == "x86_64" else "__ia32_sys_ni_syscall"
        assert len(found) > 300
        # A number that the table leaves out goes to the default of the switch.
        assert found == {name: expected.get(known[name] or 0, nothing) for name in found}
        assert sum(not function.endswith(f"_sys_{name}") for name, function in found.items()) > 5


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_table_that_the_kernel_keeps_says_the_same(workshop: BuildContext, kernel: str) -> None:
    """A kernel with a switch keeps sys_call_table for the tracing of system calls. Debian's for i386 lists no data."""
    made = ready_kernel(workshop, kernels()[kernel])
    code = made.code
    assert code is not None
    table = code.address("sys_call_table")
    assert (table is None) == (kernel == "debian-686")
    if table is None:
        return
    for number in filter(None, (call.number(made.spec.arch, "auto") for call in system_calls().values())):
        if number not in built_from(made, made.spec.arch):
            continue  # of a newer kernel: not in the table
        pointer = code.number(table + number * code.word)
        assert pointer is not None
        assert dispatched(code, made.spec.arch, number) in code.names_at(pointer)
