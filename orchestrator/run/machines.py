# SPDX-License-Identifier: GPL-2.0-only
"""Machines for kernels: CPU, memory, timing, initramfs and disks."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.guest_disks import ready_disks
from orchestrator.artifacts.initramfs import initramfs
from orchestrator.artifacts.qemu_plugins import qemu_plugin
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.cpus import CpuModel, cpu, cpu_caches, cpus
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.errors import UsageError
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.experiment.plan import Boot
from orchestrator.guest.accelerator import check_cpu, choose_accelerator
from orchestrator.guest.machine import CountingPlugin, Login, Machine, Timing
from orchestrator.guest.qemu_facts import qemu_cpu_names, qemu_has_plugins
from orchestrator.profile.counted.kernel_entries import has_landmarks, landmarks, together_below

ROOT = Login()


def known_cpu(name: str) -> CpuModel:
    """The CPU model of the catalogue, or QEMU's. Raises UsageError for an unknown one."""
    if name not in cpus() and name not in qemu_cpu_names():
        raise UsageError(unknown("CPU", name, cpus()), hint="or a CPU model of QEMU: qemu-system-x86_64 -cpu help")
    return cpu(name)


def check_possible(kernel: KernelSpec, model: CpuModel) -> None:
    """Raise UsageError for a CPU that a kernel does not boot on."""
    why_not = kernel.unsupported_reason(model)
    if why_not is not None:
        raise UsageError(why_not)


def machine_of(context: BuildContext, kernel: Kernel, boot: Boot) -> Machine:
    """The machine of a plan's boot: on the exact clock, or keeping real time. Raises HostError."""
    machine = machine_for(context, kernel, boot.guest)
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
        caches=cpu_caches()[boot.guest.cpu] if "caches" in boot.profile else None,
    )


def _following_programs(context: BuildContext, kernel: Kernel) -> CountingPlugin | None:
    code = kernel.code
    if code is None or not has_landmarks(code):
        return None  # its cells are unsupported

    text, label = landmarks(code), f"landmarks of {kernel.spec.name}"
    file = context.cache.obtain_file("landmarks", {"text": text}, label, "landmarks", lambda new: new.write_text(text))
    plugin = qemu_plugin(context, "count")
    return CountingPlugin(plugin, has_stacks=True, together_below=together_below(code), landmarks=file)


def timing_of(guest: GuestSpec) -> Timing:
    """The timing that a guest gets on this host. Raises HostError if the host cannot run guests at all."""
    return "instructions" if guest.timing == "instructions" else choose_accelerator(guest.timing)


def machine_for(context: BuildContext, kernel: Kernel, guest: GuestSpec, login: Login = ROOT) -> Machine:
    """The machine of a guest that is asked for, with its initramfs and disks made on demand.

    Raises HostError, BuildError, and UsageError for disks that its kernel cannot have or a CPU that its clock excludes.
    """
    cpu, timing = guest.cpu_model, timing_of(guest)
    check_cpu(cpu, timing)
    return Machine(
        **ready_disks(context, kernel, guest)._asdict(),
        cpu=cpu,
        smp=guest.smp,
        memory_mib=guest.memory_mib,
        timing=timing,
        kernel=kernel.image,
        initramfs=initramfs(context, kernel),
        drivers_built_in=kernel.drivers_built_in,
        smp_kernel=kernel.smp,
        extra_parameters=tuple(kernel.spec.kernel_parameters),
        channel=guest.channel,
        login=login,
    )
