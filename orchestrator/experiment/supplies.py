# SPDX-License-Identifier: GPL-2.0-only
"""Everything a boot's cells need before the guest starts: kernel, initramfs, and a module for every probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.artifacts.initramfs import initramfs
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.modules import Module, ModuleSource, build_modules, render
from orchestrator.artifacts.workshop import Workshop
from orchestrator.catalog.benchmarks import benchmarks
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import KernelSpec, kernels
from orchestrator.catalog.probes import ProbeKind, probes
from orchestrator.errors import BuildError
from orchestrator.experiment.plan import Boot, Cell
from orchestrator.guest.machine import Machine


@dataclass(frozen=True)
class Target:
    """Where a cell's probe goes: a symbol and an offset in bytes; and its module, or why it did not build."""

    symbol: str
    offset: int
    module: Module | BuildError | None


@dataclass(frozen=True)
class Supplies:
    """A boot's machine and kernel, and every cell's target or the reason why this kernel cannot have it."""

    kernel: Kernel
    machine: Machine
    targets: Mapping[str, Target | str]


def gather(workshop: Workshop, boot: Boot) -> Supplies:
    """Fetch and build what a boot needs. Raises HostError and the like when there is no kernel to boot.

    A module that does not build is its own cells' failure only.
    """
    kernel = ready_kernel(workshop, kernels()[boot.kernel])
    machine = Machine(
        cpu=cpu(boot.cpu),
        kernel=kernel.image,
        initramfs=initramfs(workshop, kernel),
        smp=boot.smp,
        memory_mib=boot.memory_mib,
        drivers_built_in=kernel.drivers_built_in,
    )
    objections = {cell.id: _objection(kernel, cell) for cell in boot.cells}
    sources: dict[str, ModuleSource] = {}
    for cell in boot.cells:
        template = probes()[cell.probe].template
        if template is not None and objections[cell.id] is None:
            symbol, offset = place(kernel.spec, cell)
            single_step = int(_must_avoid_booster(kernel, probes()[cell.probe]))
            sources[cell.id] = render(template, {"symbol": symbol, "offset": offset, "single_step": single_step})
    built = dict(zip(sources, build_modules(workshop, kernel, list(sources.values())), strict=True))
    targets: dict[str, Target | str] = {}
    for cell in boot.cells:
        objection = objections[cell.id]
        targets[cell.id] = objection or Target(*place(kernel.spec, cell), built.get(cell.id))
    return Supplies(kernel, machine, targets)


def place(spec: KernelSpec, cell: Cell) -> tuple[str, int]:
    """The symbol and offset that a cell probes on this kernel."""
    symbol = benchmarks()[cell.benchmark].symbols[spec.arch][cell.entry]
    return symbol, spec.entry_offset if probes()[cell.probe].at == "after-ftrace-nop" else 0


def _objection(kernel: Kernel, cell: Cell) -> str | None:
    """Why this kernel cannot have this cell, by its own configuration; None when it can."""
    kind: ProbeKind = probes()[cell.probe]
    arch = kernel.spec.arch
    if cell.entry not in benchmarks()[cell.benchmark].symbols[arch]:
        return f"programs of {arch} have no system call entry {cell.entry}"
    if kind.mechanism == "ftrace" and kernel.config.get("CONFIG_KPROBES_ON_FTRACE") != "y":
        return "this kernel was built without CONFIG_KPROBES_ON_FTRACE"
    if kind.mechanism == "jump" and kernel.config.get("CONFIG_OPTPROBES") != "y":
        return "this kernel was built without CONFIG_OPTPROBES"
    if kind.mechanism == "int3" and kind.int3_per_hit == 1 and not _has_booster(kernel):
        return "this kernel is preemptible, and such a kernel has no booster"
    return None


def _has_booster(kernel: Kernel) -> bool:
    # can_boost() of arch/x86/kernel/kprobes/core.c is compiled in without CONFIG_PREEMPTION only.
    return kernel.config.get("CONFIG_PREEMPTION") != "y"


def _must_avoid_booster(kernel: Kernel, kind: ProbeKind) -> bool:
    """Whether a probe is to be single-stepped on a kernel that would boost it; a post-handler prevents that."""
    return kind.mechanism == "int3" and kind.int3_per_hit > 1 and _has_booster(kernel)
