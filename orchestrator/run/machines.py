# SPDX-License-Identifier: GPL-2.0-only
"""Machines for kernels: CPU, memory, timing, initramfs and disks."""

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
from orchestrator.artifacts.compiler import qemu_plugin
from orchestrator.artifacts.kernels import Kernel
from orchestrator.catalog.cpus import CpuModel, cpu, cpu_caches, cpus
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.errors import UsageError
from orchestrator.experiment.plan import Boot
from orchestrator.guest.accelerator import check_cpu, choose_accelerator
from orchestrator.guest.machine import CountingPlugin, Machine, Timing, qemu_cpu_names, qemu_has_plugins
from orchestrator.profile.counted.kernel_entries import has_landmarks, landmarks, together_below


@dataclass(frozen=True)
class Hardware:
    """What a user chooses of a machine: a CPU model, the number of CPUs, memory in MiB, and timing."""

    cpu: CpuModel
    smp: int
    memory_mib: int
    timing: Timing


def usual_kernel(image: str | None) -> str:
    """The default kernel: one that suits the image."""
    return "debian-amd64" if image is not None and image_arch(image) == "x86_64" else "debian-686"


def usual_cpu(kernel: KernelSpec) -> str:
    """The default CPU: one that the kernel boots on."""
    return "xeon-e5410" if kernel.needs_long_mode else "pentium4"


def known_cpu(name: str) -> CpuModel:
    """The CPU model of the catalogue, or QEMU's. Raises UsageError for an unknown one."""
    if name not in cpus() and name not in qemu_cpu_names():
        raise UsageError(unknown("CPU", name, cpus()), hint="or a CPU model of QEMU: qemu-system-x86_64 -cpu help")
    return cpu(name)


def timing_named(word: str) -> Timing:
    """The timing for ``instructions``, or for an accelerator as in ``choose_accelerator``. Raises as that does."""
    return "instructions" if word == "instructions" else choose_accelerator(word)


def check_possible(kernel: KernelSpec, model: CpuModel, disks: GuestDisks) -> None:
    """Raise UsageError for a CPU that a kernel does not boot on, or disks that it cannot have."""
    why_not = kernel.unsupported_reason(model) or unsupported_reason(disks, kernel)
    if why_not is not None:
        raise UsageError(why_not)


def machine_of(context: BuildContext, kernel: Kernel, boot: Boot) -> Machine:
    """The machine of a plan's boot: on the exact clock, or keeping real time. Raises HostError."""
    hardware = Hardware(cpu(boot.cpu), boot.smp, boot.memory_mib, timing_of(boot))
    machine = machine_for(
        context, kernel, hardware, GuestDisks(boot.image, boot.channel, kernel_modules=bool(boot.kernel_modules))
    )
    return replace(machine, keeps_time=boot.clock == "wall", counter=_counter(context, kernel, boot))


def counting(context: BuildContext, machine: Machine) -> Machine:
    """The same machine with the instruction counter; unchanged if not on the exact clock."""
    if machine.timing != "instructions":
        return machine
    return replace(machine, counter=CountingPlugin(qemu_plugin(context, "count")))


def _counter(context: BuildContext, kernel: Kernel, boot: Boot) -> CountingPlugin | None:
    if any(cell.takes_turns for cell in boot.cells):
        return CountingPlugin(qemu_plugin(context, "cpus"), each_cpu=True)
    if not boot.profile and not (any(cell.counts_classes for cell in boot.cells) and qemu_has_plugins()):
        return None
    if "system-calls" in boot.profile:
        return _following_programs(context, kernel)
    return CountingPlugin(
        qemu_plugin(context, "count"),
        only_classes=not boot.profile,
        is_detailed=not boot.profile.isdisjoint({"classes", "caches"}),
        has_stacks="stacks" in boot.profile,
        has_order="order" in boot.profile,
        caches=cpu_caches()[boot.cpu] if "caches" in boot.profile else None,
    )


def _following_programs(context: BuildContext, kernel: Kernel) -> CountingPlugin | None:
    code = kernel.code
    if code is None or not has_landmarks(code):
        return None  # its cells are unsupported

    text, label = landmarks(code), f"landmarks of {kernel.spec.name}"
    file = context.cache.obtain_file("landmarks", {"text": text}, label, "landmarks", lambda new: new.write_text(text))
    plugin = qemu_plugin(context, "count")
    return CountingPlugin(plugin, has_stacks=True, together_below=together_below(code), landmarks=file)


def timing_of(boot: Boot) -> Timing:
    """The timing of a plan's boot. Raises HostError if this host cannot run guests at all."""
    return timing_named("instructions" if boot.clock == "instructions" else "auto")


def machine_for(context: BuildContext, kernel: Kernel, hardware: Hardware, disks: GuestDisks = NOTHING) -> Machine:
    """The machine, with its initramfs and disks made on demand.

    Raises HostError, BuildError, and UsageError for disks that its kernel cannot have or a CPU that its clock excludes.
    """
    check_cpu(hardware.cpu, hardware.timing)
    return Machine(
        **ready_disks(context, kernel, disks)._asdict(),
        **vars(hardware),
        kernel=kernel.image,
        initramfs=initramfs(context, kernel),
        drivers_built_in=kernel.drivers_built_in,
        smp_kernel=kernel.smp,
        extra_parameters=tuple(kernel.spec.kernel_parameters),
        channel=disks.channel,
        login=disks.login,
    )
