# SPDX-License-Identifier: GPL-2.0-only
"""How a kind of probe is made on a kernel: by the kernel's own means where it has them, else by the module's."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Value
from orchestrator.catalog.benchmarks import benchmarks
from orchestrator.catalog.probes import ProbeKind, probes
from orchestrator.experiment.plan import Cell


@dataclass(frozen=True)
class Realisation:
    """A place to probe (symbol and offset in bytes), the module that does it, and what a reader has to know of it.

    ``template`` is a module of ``kmods/modules.yaml`` (None: nothing is loaded), to be rendered with ``values``.
    """

    symbol: str
    offset: int
    template: str | None
    values: dict[str, Value]
    notes: tuple[str, ...]


def objection(kernel: Kernel, cell: Cell) -> str | None:
    """Why this kernel cannot have this cell, by its own configuration; None when it can."""
    kind = probes()[cell.probe]
    arch = kernel.spec.arch
    if cell.entry not in benchmarks()[cell.benchmark].symbols[arch]:
        return f"programs of {arch} have no system call entry {cell.entry}"
    for option in _needs(kind):
        if kernel.config.get(option) != "y":
            return f"this kernel was built without {option}"
    single_stepped_return = kind.template == "kretprobe" and _breakpoints(kind) == 2
    if single_stepped_return and has_booster(kernel) and not _behind_nop(kernel, kind):
        return (
            "register_kretprobe() takes no post-handler, so this kernel always boosts a kretprobe; "
            f"take a preemptible one, such as {_preemptible(kernel)}"
        )
    return None


def realise(kernel: Kernel, cell: Cell) -> Realisation:
    """How this kernel gets the cell's probe. Only for a cell without an objection."""
    kind = probes()[cell.probe]
    benchmark = benchmarks()[cell.benchmark]
    arch = kernel.spec.arch
    offset = kernel.spec.entry_offset if kind.at == "after-ftrace-nop" else 0
    values: dict[str, Value] = {
        "symbol": benchmark.symbols[arch][cell.entry],
        "offset": offset,
        "number": benchmark.numbers[arch][cell.entry],
    }
    template, notes = kind.template, []
    own_booster = _breakpoints(kind) == 1 and not has_booster(kernel)
    if template == "kretprobe" and (own_booster or _behind_nop(kernel, kind)):
        template = "kretprobe_rethook"
        why = "takes no booster of a module's" if own_booster else "refuses a place behind the function tracer's nop"
        notes.append(f"the return is hooked by the module: register_kretprobe() {why}")
    if _breakpoints(kind) == 2 and (has_booster(kernel) or kind.optimisation):
        values["single_step"] = 1
        why = "it could be optimised" if kind.optimisation else "this kernel boosts kprobes"
        notes.append(f"single-stepped because of a post-handler; without one {why}")
    if own_booster:
        values["own_booster"] = 1
        notes.append("boosted by the module's own booster: this kernel is preemptible, and such a kernel has none")
    if kind.mechanism == "detour":
        values["hold_optimiser"] = 1
        notes.append("the module holds the kernel's optimiser back, so that every hit comes before the optimisation")
    if kernel.smp and cell.smp == 1:
        notes.append("an SMP kernel on one virtual CPU, its lock prefixes kept (noreplace-smp)")
    return Realisation(str(values["symbol"]), offset, template, values, tuple(notes))


def has_booster(kernel: Kernel) -> bool:
    """Whether the kernel's kprobes are boosted where the instruction allows it.

    can_boost() of arch/x86/kernel/kprobes/core.c is compiled in without CONFIG_PREEMPTION only.
    """
    return kernel.config.get("CONFIG_PREEMPTION") != "y"


def _needs(kind: ProbeKind) -> tuple[str, ...]:
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
    return kind.int3_per_hit if kind.template in ("kprobe", "kretprobe") and kind.mechanism == "int3" else 0


def _behind_nop(kernel: Kernel, kind: ProbeKind) -> bool:
    return kind.at == "after-ftrace-nop" and kernel.config.get("CONFIG_DYNAMIC_FTRACE") == "y"


def _preemptible(kernel: Kernel) -> str:
    return "lab-x86_64-smp-preempt" if kernel.spec.arch == "x86_64" else "lab-i386-smp-preempt"
