# SPDX-License-Identifier: GPL-2.0-only
"""Everything a boot's cells need before the guest starts: kernel, initramfs, and a module for every probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.module_source import ModuleSource, render, render_own
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.prebuilt import prebuilt
from orchestrator.artifacts.workshop import Workshop
from orchestrator.benchmarks.workload import Workload
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import BuildError, UnsupportedError
from orchestrator.experiment import realisation, recording
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.machines import machine_of
from orchestrator.experiment.macro_work import fetch_work
from orchestrator.experiment.plan import Boot
from orchestrator.experiment.realisation import Realisation
from orchestrator.experiment.workloads import Workloads
from orchestrator.guest.machine import Machine


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
class Supplies:
    """A boot's machine and kernel, and every cell's target or the reason why this kernel cannot have it."""

    kernel: Kernel
    machine: Machine
    targets: Mapping[str, Target | str]


def gather(workshop: Workshop, boot: Boot) -> Supplies:
    """Fetch and build what a boot needs. Raises HostError and the like when there is no kernel to boot.

    A module that does not build is its own cells' failure only.
    """
    kernel = ready_kernel(workshop, kernel_spec(boot.kernel))
    machine = machine_of(workshop, kernel, boot)
    targets: dict[str, Target | str] = {}
    realised: dict[str, Realisation] = {}
    for cell in boot.cells:
        how = realisation if cell.macro is None else recording
        why_not = how.objection(kernel, cell) or _work_objection(workshop, kernel, cell)
        if why_not is not None:
            targets[cell.id] = why_not
        else:
            realised[cell.id] = how.realise(kernel, cell)
    modules = _modules(workshop, kernel, realised)
    workloads = Workloads(workshop, kernel)
    for cell in boot.cells:
        if cell.id in realised:
            one, module = realised[cell.id], modules.get(cell.id)
            workload = workloads.of(cell)
            if isinstance(module, str):
                targets[cell.id] = module
                continue
            notes = (*one.notes, *_compiled_otherwise(kernel, module))
            targets[cell.id] = Target(one.symbol, one.offset, workload, module, notes)
    return Supplies(kernel, machine, targets)


def _compiled_otherwise(kernel: Kernel, module: Module | BuildError | None) -> tuple[str, ...]:
    """What a reader has to know of a module that was compiled here by another compiler than its kernel."""
    compiled = isinstance(module, Module) and module.sources is not None
    return (kernel.compiler_note,) if compiled and kernel.compiler_note is not None else ()


def _work_objection(workshop: Workshop, kernel: Kernel, cell: Cell) -> str | None:
    """Fetch what a whole-system workload needs; return why this kernel cannot do it, None when it can."""
    if cell.macro is None:
        return None
    try:
        fetch_work(workshop, kernel, recording.request_of(cell, None))
    except UnsupportedError as error:
        return str(error)
    return None


def _modules(
    workshop: Workshop, kernel: Kernel, realised: Mapping[str, Realisation]
) -> dict[str, Module | BuildError | str]:
    """The cells' modules; a text where the user's own cannot be on this kernel."""
    found: dict[str, Module | BuildError | str] = {}
    sources: dict[str, ModuleSource] = {}
    for id_, one in realised.items():
        if one.template is not None:
            sources[id_] = render(one.template, one.values)
        elif one.own is not None and one.own.suffix == ".ko":
            found[id_] = prebuilt(one.own, kernel)
        elif one.own is not None:
            sources[id_] = render_own(one.own, one.values)
    found |= zip(sources, build_modules(workshop, kernel, list(sources.values())), strict=True)
    return found
