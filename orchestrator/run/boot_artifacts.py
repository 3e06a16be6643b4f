# SPDX-License-Identifier: GPL-2.0-only
"""Everything a boot's cells need before the guest starts: kernel, initramfs, and a module for every probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.module_source import ModuleSource, render, render_own
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.prebuilt import prebuilt
from orchestrator.benchmarks.calls import probe_setup
from orchestrator.benchmarks.calls.probe_setup import ProbeSetup
from orchestrator.benchmarks.calls.workload import Workload
from orchestrator.benchmarks.calls.workloads import Workloads
from orchestrator.benchmarks.system import recording
from orchestrator.benchmarks.system.work import fetch_work
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import BuildError, UnsupportedError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import Boot
from orchestrator.guest.machine import Machine
from orchestrator.run.machines import machine_of


@dataclass(frozen=True)
class Target:
    """Where a cell's probe goes (offset in bytes), what is run, and what to tell a reader.

    Of the cell's module and of its workload there is the error instead where one did not build. Without a workload the
    module runs what is measured.
    """

    symbol: str
    offset: int
    workload: Workload | BuildError | None
    module: Module | BuildError | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BootArtifacts:
    """A boot's machine and kernel, and every cell's target or the reason why this kernel cannot have it."""

    kernel: Kernel
    machine: Machine
    targets: Mapping[str, Target | str]


def gather(context: BuildContext, boot: Boot) -> BootArtifacts:
    """Fetch and build what a boot needs. Raises HostError and the like when there is no kernel to boot.

    A module that does not build is its own cells' failure only.
    """
    kernel = ready_kernel(context, kernel_spec(boot.kernel))
    machine = machine_of(context, kernel, boot)
    targets: dict[str, Target | str] = {}
    setups: dict[str, ProbeSetup] = {}
    for cell in boot.cells:
        how = probe_setup if cell.macro is None else recording
        why_not = how.unsupported_reason(kernel, cell) or _work_unsupported_reason(context, kernel, cell)
        if why_not is not None:
            targets[cell.id] = why_not
        else:
            setups[cell.id] = how.set_up(kernel, cell)
    modules = _modules(context, kernel, setups)
    workloads = Workloads(context, kernel)
    for cell in boot.cells:
        if cell.id in setups:
            one, module = setups[cell.id], modules.get(cell.id)
            workload = workloads.of(cell)
            if isinstance(module, str):
                targets[cell.id] = module
                continue
            notes = (*one.notes, *_compiled_otherwise(kernel, module))
            targets[cell.id] = Target(one.symbol, one.offset, workload, module, notes)
    return BootArtifacts(kernel, machine, targets)


def _compiled_otherwise(kernel: Kernel, module: Module | BuildError | None) -> tuple[str, ...]:
    """What a reader has to know of a module that was compiled here by another compiler than its kernel."""
    compiled = isinstance(module, Module) and module.sources is not None
    return (kernel.compiler_note,) if compiled and kernel.compiler_note is not None else ()


def _work_unsupported_reason(context: BuildContext, kernel: Kernel, cell: Cell) -> str | None:
    """Fetch what a whole-system workload needs; return why this kernel cannot do it, None when it can."""
    if cell.macro is None:
        return None
    try:
        fetch_work(context, kernel, recording.request_of(cell, None))
    except UnsupportedError as error:
        return str(error)
    return None


def _modules(
    context: BuildContext, kernel: Kernel, setups: Mapping[str, ProbeSetup]
) -> dict[str, Module | BuildError | str]:
    """The cells' modules; a text where the user's own cannot be on this kernel."""
    found: dict[str, Module | BuildError | str] = {}
    sources: dict[str, ModuleSource] = {}
    for id_, one in setups.items():
        if one.template is not None:
            sources[id_] = render(one.template, one.values)
        elif one.own is not None and one.own.suffix == ".ko":
            found[id_] = prebuilt(one.own, kernel)
        elif one.own is not None:
            sources[id_] = render_own(one.own, one.values)
    found |= zip(sources, build_modules(context, kernel, list(sources.values())), strict=True)
    return found
