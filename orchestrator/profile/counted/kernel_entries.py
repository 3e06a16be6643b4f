# SPDX-License-Identifier: GPL-2.0-only
"""What system calls cost a program: landmarks for QEMU's plugin, and a run's instructions by what entered the kernel.

The plugin begins each stack with what entered the kernel from a program: the function of a system call, or an
exception's or interrupt's entry. A task that waits keeps its stack until it runs again (``images/plugin/stacks.h``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, KernelCode
from orchestrator.profile.counted.counts import Region, Stack
from orchestrator.profile.counted.generated_code import GENERATED, MadeCode
from orchestrator.profile.counted.places import Places, kernel_start
from orchestrator.results.contract import BACKGROUND, PartKind, RunPart

_CALL = re.compile(r"__(x64|ia32)_(?:compat_)?sys_(\w+)")
"""Functions of system calls (arch/x86/include/asm/syscall_wrapper.h)."""
_EXCEPTION = re.compile(r"asm_exc_(\w+)")
_PAGE_FAULT = "asm_exc_page_fault"
_INTERRUPT = re.compile(r"asm_sysvec_\w+")
"""Entries, each the beginning of a gate (arch/x86/include/asm/idtentry.h)."""
_STUBS = ("irq_entries_start", "spurious_entries_start")
_STUB = 8
"""Bytes of an interrupt's stub, or half of one (IDT_ALIGN)."""
_MOST_STUBS = 256
_SINGLE = {"__switch_to_asm": "s", "do_task_dead": "d", "_etext": "e"}
_START = "_stext"


def together_below(code: KernelCode) -> int:
    """The address below which all code is of programs."""
    return kernel_start(code.address(_START) or 0)


def has_landmarks(code: KernelCode | None) -> bool:
    """Whether a kernel's symbols are known, and have what ``landmarks`` needs; older kernels have other names."""
    if code is None or any(code.address(name) is None for name in (*_SINGLE, _START, _PAGE_FAULT)):
        return False
    return any(_CALL.fullmatch(symbol.name) for symbol in code.symbols)


def landmarks(code: KernelCode) -> str:
    """The addresses that the plugin has to know, and what begins there.

    ``t`` enters the kernel also while it runs, ``c`` is the function of a system call, ``s`` switches to another task,
    ``d`` is the last that a task does, ``f`` any other function, and ``e`` the end of all.
    """
    marks: dict[int, str] = {}
    for symbol in code.symbols:
        if symbol.name in _STUBS:
            end = min(code.following(symbol.address) or 0, symbol.address + 2 * _STUB * _MOST_STUBS)
            marks |= dict.fromkeys(range(symbol.address, end, _STUB), "t")
        elif _EXCEPTION.fullmatch(symbol.name) or _INTERRUPT.fullmatch(symbol.name):
            marks[symbol.address] = "t"
        elif symbol.type in FUNCTION_TYPES:
            marks[symbol.address] = "c" if _CALL.fullmatch(symbol.name) else marks.get(symbol.address, "f")
    marks |= {address: kind for name, kind in _SINGLE.items() if (address := code.address(name)) is not None}
    return "".join(f"{address:x} {kind}\n" for address, kind in sorted(marks.items()) if address)


Part = tuple[PartKind, str]
"""What entered the kernel, or user space: its kind and its name."""
_Begins = Callable[[int], Part | None]
_USER: Part = ("user", "")
_KERNEL: Part = ("kernel", "")
_INTERRUPTS: Part = ("interrupt", "")
_FAULTS: Part = ("exception", "page_fault")
_ORDER: Sequence[PartKind] = ("user", "call", "exception", "interrupt", "kernel")


def part_of(name: str, *, is_64_bit: bool) -> Part | None:
    """What the function begins; None for any other function."""
    if call := _CALL.fullmatch(name):
        return "call", f"{call[2]} (32 bit)" if is_64_bit and call[1] == "ia32" else call[2]
    if exception := _EXCEPTION.fullmatch(name):
        return "exception", exception[1]
    return _INTERRUPTS if name in _STUBS or _INTERRUPT.fullmatch(name) else None


RunCounts = Mapping[Part, int]
"""The instructions of a run by its parts."""


class CountedRuns(NamedTuple):
    """The program's own instructions of each run, and of each ``plain`` run without the probe; the parts of all."""

    instructions: Sequence[float]
    plain: Sequence[float]
    parts: tuple[RunPart, ...]


def run_counts(runs: Sequence[Region], places: Places) -> Sequence[RunCounts]:
    """The parts of each run.

    Interrupts and page faults count for themselves wherever they happen, other exceptions for what they interrupt. The
    last reading of the clock, which is in the region, is left out.
    """
    begins = _beginnings(places)
    counts_of_each = []
    for run in runs:
        counts = Counter[Part]({_USER: -1})
        for stack, count in run.stacks.items():
            counts[_part(stack, places.kernel_start, begins)] += count
        counts_of_each.append(counts)
    return counts_of_each


def counted_runs(runs: Sequence[Region], places: Places, plain: Sequence[RunCounts] = ()) -> CountedRuns:
    """The parts of runs, and of ``plain`` ones without the probe, where there is one."""
    counts = run_counts(runs, places)
    of_program = _of_program(counts)
    middle = median_run(of_program)
    calls = entered_parts(runs[middle], places)

    def order(part: Part) -> tuple[int, int, str]:
        return _ORDER.index(part[0]), -max(run.get(part, 0) for run in counts), part[1]

    parts = tuple(
        RunPart(
            kind=part[0],
            name=part[1],
            calls=calls[part],
            instructions=counts[middle].get(part, 0),
            runs=tuple(run.get(part, 0) for run in counts),
            plain=tuple(run.get(part, 0) for run in plain),
        )
        for part in sorted({part for run in (*counts, *plain) for part in run}, key=order)
    )
    return CountedRuns(of_program, _of_program(plain), parts)


def median_run(samples: Sequence[float]) -> int:
    """The number of the run whose parts are told."""
    return sorted(range(len(samples)), key=samples.__getitem__)[(len(samples) - 1) // 2]


def _beginnings(places: Places) -> _Begins:
    # The guest need not list the code that it made.
    places, is_64_bit = replace(places, made_at=lambda _: MadeCode(GENERATED)), places.arch == "x86_64"

    @cache
    def begins(address: int) -> Part | None:
        function = places.owner(address).function
        return part_of(function.name, is_64_bit=is_64_bit) if function.module is None and function.address else None

    return begins


def _of_program(runs: Sequence[RunCounts]) -> Sequence[float]:
    return [float(sum(count for part, count in run.items() if part[0] not in BACKGROUND)) for run in runs]


def _part(stack: Stack, kernel_start: int, begins_at: _Begins) -> Part:
    *frames, block = stack
    if block < kernel_start:
        return _USER
    begun = [part for part in map(begins_at, frames) if part is not None]
    for part in (_INTERRUPTS, _FAULTS):
        if part in begun:
            return part
    return begun[0] if begun else _KERNEL


def entered_parts(run: Region, places: Places) -> Counter[Part]:
    """How often each part was begun: executions of the first instruction."""
    begun, begins_at = Counter[Part](), _beginnings(places)
    for code, counts in run.counts.items():
        part = begins_at(code.address) if code.address >= places.kernel_start else None
        behind = code.address - places.owner(code.address).function.address if part is not None else 0
        is_stub = part is not None and places.owner(code.address).function.name in _STUBS
        if part is not None and (behind % _STUB if is_stub else behind) == 0:
            begun[part] += counts.executed
    return begun
