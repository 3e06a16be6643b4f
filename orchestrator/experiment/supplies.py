# SPDX-License-Identifier: GPL-2.0-only
"""Everything a boot's cells need before the guest starts: kernel, initramfs, and a module for every probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.modules import Module, build_modules, render
from orchestrator.artifacts.workshop import Workshop
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import BuildError
from orchestrator.experiment.machines import machine_of
from orchestrator.experiment.plan import Boot
from orchestrator.experiment.realisation import Realisation, objection, realise
from orchestrator.guest.machine import Machine


@dataclass(frozen=True)
class Target:
    """Where a cell's probe goes (offset in bytes), its module or why that did not build, and what to tell a reader."""

    symbol: str
    offset: int
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
        why_not = objection(kernel, cell)
        if why_not is not None:
            targets[cell.id] = why_not
        else:
            realised[cell.id] = realise(kernel, cell)
    sources = {id_: render(one.template, one.values) for id_, one in realised.items() if one.template is not None}
    built = dict(zip(sources, build_modules(workshop, kernel, list(sources.values())), strict=True))
    for id_, one in realised.items():
        targets[id_] = Target(one.symbol, one.offset, built.get(id_), one.notes)
    return Supplies(kernel, machine, targets)
