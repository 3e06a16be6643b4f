# SPDX-License-Identifier: GPL-2.0-only
"""A machine that boots a kernel: what the guest needs to know of it, and the initramfs that goes with it."""

from __future__ import annotations

from orchestrator.artifacts.initramfs import initramfs
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.workshop import Workshop
from orchestrator.catalog.cpus import CpuModel
from orchestrator.guest.machine import Machine, Timing


def machine_for(
    workshop: Workshop, kernel: Kernel, cpu: CpuModel, *, smp: int, memory_mib: int, timing: Timing
) -> Machine:
    """The machine, its initramfs made where it is not there yet. ``memory_mib`` in MiB. Raises HostError."""
    return Machine(
        cpu=cpu,
        kernel=kernel.image,
        initramfs=initramfs(workshop, kernel),
        smp=smp,
        memory_mib=memory_mib,
        timing=timing,
        drivers_built_in=kernel.drivers_built_in,
        smp_kernel=kernel.smp,
    )
