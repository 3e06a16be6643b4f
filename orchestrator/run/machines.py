# SPDX-License-Identifier: GPL-2.0-only
"""A machine that boots a kernel: what the guest needs to know of it, and the initramfs that goes with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.artifacts.boot_files import (
    NOTHING,
    GuestDisks,
    image_arch,
    initramfs,
    ready_disks,
    unsupported_reason,
)
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.compiler import counting_plugin
from orchestrator.artifacts.kernels import Kernel
from orchestrator.catalog.cpus import CpuModel, cpu, cpu_caches
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.errors import UsageError
from orchestrator.experiment.plan import Boot
from orchestrator.guest.accelerator import check_cpu, choose_accelerator
from orchestrator.guest.machine import CountingPlugin, Machine, Timing


@dataclass(frozen=True)
class Hardware:
    """A CPU model, how many of it, memory in MiB, and how time passes."""

    cpu: CpuModel
    smp: int
    memory_mib: int
    timing: Timing


def usual_kernel(image: str | None) -> str:
    """The kernel of a guest where none is named: one for its image."""
    return "debian-amd64" if image is not None and image_arch(image) == "x86_64" else "debian-686"


def usual_cpu(kernel: KernelSpec) -> str:
    """The CPU of a guest where none is named: one that its kernel boots on."""
    return "xeon-e5410" if kernel.needs_long_mode else "pentium4"


def timing_named(word: str) -> Timing:
    """How time passes in a guest, by ``instructions``, or as ``choose_accelerator`` takes it. Raises as that does."""
    return "instructions" if word == "instructions" else choose_accelerator(word)


def check_possible(kernel: KernelSpec, model: CpuModel, disks: GuestDisks) -> None:
    """Raise UsageError for a CPU that a kernel does not boot on, and for disks that it cannot have."""
    why_not = kernel.unsupported_reason(model) or unsupported_reason(disks, kernel)
    if why_not is not None:
        raise UsageError(why_not)


def machine_of(context: BuildContext, kernel: Kernel, boot: Boot) -> Machine:
    """The machine of a plan's boot: exact, or one whose nanoseconds are believed. Raises HostError."""
    hardware = Hardware(cpu(boot.cpu), boot.smp, boot.memory_mib, timing_of(boot))
    machine = machine_for(
        context, kernel, hardware, GuestDisks(boot.image, boot.channel, kernel_modules=bool(boot.kernel_modules))
    )
    return replace(machine, keeps_time=boot.clock == "wall", counter=_counter(context, boot))


def counting(context: BuildContext, machine: Machine) -> Machine:
    """The same machine, whose QEMU can count each instruction; one that is not on the exact clock as it is."""
    if machine.timing != "instructions":
        return machine
    return replace(machine, counter=CountingPlugin(counting_plugin(context)))


def _counter(context: BuildContext, boot: Boot) -> CountingPlugin | None:
    if not boot.profile:
        return None
    return CountingPlugin(
        counting_plugin(context),
        is_detailed=not boot.profile.isdisjoint({"classes", "caches"}),
        has_stacks="stacks" in boot.profile,
        caches=cpu_caches()[boot.cpu] if "caches" in boot.profile else None,
    )


def timing_of(boot: Boot) -> Timing:
    """How time passes in a plan's boot. Raises HostError where this host cannot run guests at all."""
    return timing_named("instructions" if boot.clock == "instructions" else "auto")


def machine_for(context: BuildContext, kernel: Kernel, hardware: Hardware, wanted: GuestDisks = NOTHING) -> Machine:
    """The machine, its initramfs and disks made where they are not there yet.

    Raises HostError, BuildError, and UsageError for disks that its kernel cannot have and for a CPU that its clock
    excludes.
    """
    check_cpu(hardware.cpu, hardware.timing)
    disks = ready_disks(context, kernel, wanted)
    return Machine(
        cpu=hardware.cpu,
        kernel=kernel.image,
        initramfs=initramfs(context, kernel),
        smp=hardware.smp,
        memory_mib=hardware.memory_mib,
        timing=hardware.timing,
        drivers_built_in=kernel.drivers_built_in,
        smp_kernel=kernel.smp,
        extra_parameters=tuple(kernel.spec.kernel_parameters),
        root=disks.root,
        data=disks.data,
        disk_drivers=disks.drivers,
        channel=wanted.channel,
        login=wanted.login,
    )
