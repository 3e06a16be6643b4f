# SPDX-License-Identifier: GPL-2.0-only
"""How a cell's probe is set up: its place, its function, and the kernel's or the module's mechanism."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.machine_code import UnknownDispatchError, dispatched, entry_offset, tracer_place
from orchestrator.artifacts.module_files import loaded_code
from orchestrator.artifacts.module_source import Scalar, Value
from orchestrator.benchmarks.calls.benchmarks import ENTRIES, benchmarks, call_probe, capability_list
from orchestrator.benchmarks.calls.table import CallCell
from orchestrator.catalog.kernels import without_option
from orchestrator.catalog.probes import ProbeKind
from orchestrator.catalog.user_files import find_library, find_workload
from orchestrator.catalog.words import system_calls
from orchestrator.experiment.fields import ProgramPoint, in_program
from orchestrator.probes.placement import ProbePlace, means_of, places_of, refusal_of
from orchestrator.run.boot import parameters_note, smp_note

# The function of the kernel that a cell's system call enters.

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


# The place that a cell probes: a function, and the offset of its own first instruction or of the tracer's site.


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


# How a kind of probe is set up on a kernel: by the kernel's mechanism where it has one, else by the module's.

_NEEDED_BY_OWN_PROGRAMS = (
    *("CONFIG_BPF_EVENTS", "CONFIG_BPF_JIT", "CONFIG_KPROBE_EVENTS"),
    *("CONFIG_DEBUG_INFO_BTF", "CONFIG_DYNAMIC_FTRACE", "CONFIG_X86_64"),
)
SITES_WITHOUT_POINT = ("hook", "tracepoint")
"""Sites that are where the kernel has them, whatever a table's points are."""


@dataclass(frozen=True)
class ProbeSetup:
    """A probe point (symbol and offset in bytes), the module that probes it, and notes for the report.

    ``template`` is a module of ``kmods`` (None: no module of the lab is loaded), ``own`` a user's file; both are
    rendered with ``values``. The point is among the ``parameters`` that a module of ``kmods`` is loaded with, so that
    one build serves all points, and among the values that a user's template is rendered with.
    """

    symbol: str
    offset: int
    template: str | None
    values: dict[str, Value]
    notes: tuple[str, ...]
    own: Path | None = None
    parameters: Mapping[str, Scalar] = field(default_factory=dict)


def unsupported_reason(kernel: Kernel, cell: CallCell) -> str | None:
    """Why this kernel's release or configuration does not support the cell; None where they do."""
    kind = call_probe(cell.task.probe)
    why_not = calls_unsupported_reason(kernel, cell) or _place_unsupported_reason(kernel, cell, kind)
    if kind.has_own_programs and cell.handler == "record":
        why_not = why_not or "BPF programs of your own have no handlers, so they cannot record"
    why_not = why_not or kind.lacking_in(kernel.release, kernel.spec.arch)
    if why_not is not None:
        return why_not
    for option in _needs(kind):
        if kernel.config.get(option) != "y":
            return without_option(option, _needs(kind), kernel.spec.arch)
    single_stepped_return = kind.template == "kretprobe" and _breakpoints(kind) == 2
    if single_stepped_return and has_booster(kernel) and not _behind_nop(kernel, kind):
        return (
            "register_kretprobe() takes no post-handler, so this kernel always boosts a kretprobe; "
            f"take a preemptible one, such as {_preemptible(kernel)}"
        )
    return None


def set_up(kernel: Kernel, cell: CallCell) -> ProbeSetup:
    """How this kernel gets the cell's probe. Only for a cell that it supports."""
    kind = call_probe(cell.task.probe)
    symbol, offset = probed_place(kernel, cell, kind)
    point: Mapping[str, Scalar] = {"symbol": symbol, "offset": offset}
    # The handlers at all system calls compare with the number: as a constant that takes an instruction less.
    values: dict[str, Value] = {"number": call_number(kernel, cell) or 0}
    if kind.file is not None:
        values.update(point)
    if not is_wrapper(symbol):
        values["wrapper"] = 0
    template, notes = kind.template, [] if kind.one_liner is None else [kind.title]
    own_booster = _breakpoints(kind) == 1 and not has_booster(kernel)
    if template == "kretprobe" and (own_booster or _behind_nop(kernel, kind)):
        template = "kretprobe_rethook"
        why = "takes no booster of a module's" if own_booster else "refuses a place behind the function tracer's nop"
        notes.append(f"the return is hooked by the module: register_kretprobe() {why}")
    if _breakpoints(kind) == 2 and (has_booster(kernel) or kind.optimisation):
        values["single_step"] = 1
        if kind.extras != "removed":
            notes.append(_stepping_note(kind))
    if own_booster:
        values["own_booster"] = 1
        notes.append("boosted by the module's own booster: this kernel is preemptible, and such a kernel has none")
    if kind.capability is not None:
        values["capability"] = kind.capability.replace("-", "_")
        note = capability_list().capabilities[kind.capability].probes[kind.name.partition(".")[0]].note
        notes += [note] if note else []
    if kind.mechanism == "detour":
        values["hold_optimiser"] = 1
        notes.append("the module holds the kernel's optimiser back, so that every hit comes before the optimisation")
    notes += smp_note(kernel, cell.smp)
    parameters = point if template is not None and kind.site not in SITES_WITHOUT_POINT else {}
    if template is not None and kind.tracepoint is not None:
        parameters = {"tracepoint": kind.tracepoint}
    notes += parameters_note(kind.parameters)
    return ProbeSetup(symbol, offset, template, values, tuple(notes), kind.file, parameters)


def _stepping_note(kind: ProbeKind) -> str:
    """Why a kprobe is single-stepped on a kernel that would go on otherwise where the instruction allows it."""
    why = "it could be optimised" if kind.optimisation else "this kernel boosts kprobes"
    return f"single-stepped because of a post-handler; without one {why}"


def _is_at_system_calls(kind: ProbeKind) -> bool:
    """Whether it is hit by every system call: the kinds at other tracepoints count all hits of a process."""
    return kind.site == "hook" or kind.tracepoint in ("sys_enter", "raw_syscalls.sys_enter")


def is_wrapper(symbol: str) -> bool:
    """Whether a function is a system call's wrapper, which takes the user's registers (SYSCALL_DEFINEx on x86)."""
    return re.match(r"__(x64|ia32)_(compat_)?sys_", symbol) is not None


def calls_unsupported_reason(kernel: Kernel, cell: CallCell) -> str | None:
    """Why this kernel cannot run what the cell runs."""
    arch = kernel.spec.arch
    if cell.task.file is not None:
        whole = find_workload(cell.task.file).unsupported_reason(arch)
        each = [find_library(library).unsupported_reason(arch) for library in cell.task.libraries]
        return next(filter(None, [whole, *each]), None)
    if cell.task.entry not in ENTRIES[arch]:
        return f"programs of {arch} have no system call entry {cell.task.entry}"
    if cell.task.call is not None and call_number(kernel, cell) is None:
        return f"{arch} has no system call {cell.task.call}"
    if cell.task.call is not None and cell.task.point is None:
        return no_function_reason(kernel, cell)
    return None


def _place_unsupported_reason(kernel: Kernel, cell: CallCell, kind: ProbeKind) -> str | None:
    """Why a probe of this kind cannot be at the cell's point."""
    place = in_program(cell.task.point)
    if kind.site == "program" and place is None:
        return (
            "it is in the program that makes the calls: name the function, with points: ['program:FUNCTION'] or, in a "
            "shared library, ['libc.so.6:FUNCTION']"
        )
    if place is not None:
        return _program_unsupported_reason(place, kind)
    if kind.site in SITES_WITHOUT_POINT:
        if cell.task.point is not None:
            return "it is where the kernel has it, and at no other point"
        if cell.task.call is None and _is_at_system_calls(kind):
            return "it is at every system call, and which ones the workload makes is not known"
    if kind.capability is not None and (cell.task.point is not None or cell.task.call is None):
        return "what its handler must see is known at the function of a system call that is made"
    symbol, plus, offset = (cell.task.point or "").partition("+")
    if plus and kind.at == "entry":
        site = tracer_place(own_entry(kernel, cell, symbol))
        if int(offset, 0) != site:
            return f"the function tracer's site is at +{site:#x}: name it so, or the function without an offset"
    return None


def _program_unsupported_reason(place: ProgramPoint, kind: ProbeKind) -> str | None:
    """Why a probe of this kind cannot be at a place in the program that makes the calls."""
    if kind.has_own_programs:
        return "BPF programs of your own are measured at functions of the kernel only"
    if kind.mechanism != "none" and kind.site != "program":
        return "it probes the kernel, and the point is in a program: take a uprobe"
    if "uretprobe" in (kind.event, kind.program) and (place.offset or ":" in place.symbol):
        return "a return is probed at a function's entry: name the function, without an offset"
    return None


def has_booster(kernel: Kernel) -> bool:
    """Whether the kernel's kprobes are boosted where the instruction allows it.

    can_boost() of arch/x86/kernel/kprobes/core.c is compiled in without CONFIG_PREEMPTION only.
    """
    return kernel.config.get("CONFIG_PREEMPTION") != "y"


def _needs(kind: ProbeKind) -> tuple[str, ...]:
    if kind.has_own_programs:
        return _NEEDED_BY_OWN_PROGRAMS
    by_mechanism = _needed_by_mechanism(kind)
    if kind.event in ("uprobe", "uretprobe"):
        return ("CONFIG_UPROBE_EVENTS", "CONFIG_HIST_TRIGGERS", *by_mechanism)
    if kind.event is not None:
        events = "CONFIG_EVENT_TRACING" if kind.event == "trace" else "CONFIG_KPROBE_EVENTS"
        return (events, "CONFIG_HIST_TRIGGERS", *by_mechanism)
    if kind.program is not None:
        compiler = ("CONFIG_BPF_JIT",) if kind.is_compiled else ()
        return ("CONFIG_BPF_EVENTS", *compiler, *_needed_by_program(kind.program), *by_mechanism)
    return by_mechanism


def _needed_by_program(program: str) -> tuple[str, ...]:
    if program in ("fentry", "fexit"):
        # No trampoline is made for i386: arch_prepare_bpf_trampoline() is in arch/x86/net/bpf_jit_comp.c alone.
        return ("CONFIG_DEBUG_INFO_BTF", "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "CONFIG_X86_64")
    if program in ("tracepoint", "raw-tracepoint"):
        return ("CONFIG_PERF_EVENTS",)
    if program in ("kprobe-multi", "kretprobe-multi"):
        # On 32 bits bpf_kprobe_multi_link_attach() of kernel/trace/bpf_trace.c takes nothing.
        return ("CONFIG_FPROBE", "CONFIG_X86_64")
    if program in ("uprobe", "uretprobe"):
        return ("CONFIG_UPROBE_EVENTS",)
    return ("CONFIG_KPROBE_EVENTS",)


def _needed_by_mechanism(kind: ProbeKind) -> tuple[str, ...]:
    if kind.template in ("fprobe", "fprobe_exit"):
        return ("CONFIG_FPROBE",)
    if kind.template == "ftrace_direct":
        # On i386 a direct call stands only as long as it is the tracer's one user of the function: ftrace_regs_caller()
        # of arch/x86/kernel/ftrace_32.S calls no trampoline that arch_ftrace_set_direct_caller() has left.
        return ("CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "CONFIG_X86_64")
    if kind.site == "ftrace":
        return ("CONFIG_DYNAMIC_FTRACE",)
    if kind.site == "hook":
        return ("CONFIG_LAB_SYSCALL_HOOK",)
    if kind.site == "tracepoint":
        return ("CONFIG_TRACEPOINTS", "CONFIG_JUMP_LABEL")
    if kind.mechanism == "ftrace":
        return ("CONFIG_KPROBES_ON_FTRACE",)
    if kind.mechanism == "detour":
        return ("CONFIG_OPTPROBES", "CONFIG_KALLSYMS_ALL")  # the optimiser's work is data, found by its name
    return ("CONFIG_OPTPROBES",) if kind.optimisation else ()


def _breakpoints(kind: ProbeKind) -> int:
    """Of a kprobe or kretprobe that an int3 arms: one int3 a hit when it is boosted, two when it is single-stepped."""
    return kind.int3_per_hit or 0 if kind.template in ("kprobe", "kretprobe") and kind.mechanism == "int3" else 0


def _behind_nop(kernel: Kernel, kind: ProbeKind) -> bool:
    return kind.at == "after-ftrace-nop" and kernel.config.get("CONFIG_DYNAMIC_FTRACE") == "y"


def _preemptible(kernel: Kernel) -> str:
    return "lab-x86_64-smp-preempt" if kernel.spec.arch == "x86_64" else "lab-i386-smp-preempt"


# What a kernel's image says of the places that cells probe, before anything boots.


class KernelPlaces:
    """The places of one boot's kernel and modules, each function decoded once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._functions: dict[str, dict[int, ProbePlace]] = {}

    def refusal(self, cell: CallCell) -> str | None:
        """Why no kernel takes the cell's kind of probe at the point that the experiment names; None where one may."""
        kind = call_probe(cell.task.probe)
        if cell.task.point is None or in_program(cell.task.point) is not None:
            return None
        place = None if means_of(kind) is None else self._at(cell, *probed_place(self._kernel, cell, kind))
        return None if place is None else refusal_of(kind, place)

    def _at(self, cell: CallCell, symbol: str, offset: int) -> ProbePlace | None:
        """The instruction at a cell's place; None where the code is not at hand, or has none there."""
        if symbol not in self._functions:
            code = code_with(self._kernel, cell, symbol)
            found = None if code is None else places_of(code, self._kernel.config, symbol)
            self._functions[symbol] = {} if found is None else {one.offset: one for one in found.places}
        return self._functions[symbol].get(offset)
