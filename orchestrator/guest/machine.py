# SPDX-License-Identifier: GPL-2.0-only
"""What a guest is made of, and the QEMU command line that makes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.machine import Settings, machine_facts

QEMU = "qemu-system-x86_64"
AGENT_PORT = "orchestrator.agent"
"""The name of the virtio serial port that the agent in the guest looks for."""

Timing = Literal["instructions", "tcg", "kvm"]
"""How a guest's time passes: counted instructions (exact), plain emulation, or the host's own CPU."""


@dataclass(frozen=True)
class Machine:
    """A machine and what it boots; everything a guest's behaviour depends on. ``memory_mib`` in MiB.

    ``keeps_time`` is for guests whose nanoseconds are believed: they get timers to calibrate their TSC by, and boot
    slower.
    """

    cpu: CpuModel
    kernel: Path
    initramfs: Path
    smp: int = 1
    memory_mib: int = 256
    timing: Timing = "instructions"
    drivers_built_in: bool = False
    smp_kernel: bool = False
    keeps_time: bool = False
    extra_parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wiring:
    """The host's ends of a guest: open sockets (descriptor numbers) and the console's log file.

    With a ``terminal`` (a device's name) the console is there as well, for a person.
    """

    monitor: int | str
    agent: int | str
    console: Path | str
    terminal: str | None = None


def kernel_command_line(machine: Machine) -> str:
    """What the guest's kernel is told."""
    facts = machine_facts()
    clock = _clock(machine).kernel_parameters
    start = _start(machine).kernel_parameters
    alone = facts.smp_kernel_on_one_cpu if machine.smp_kernel and machine.smp == 1 else []
    return " ".join([*facts.kernel_parameters, *start, *clock, *alone, *machine.extra_parameters])


def qemu_command(machine: Machine, wiring: Wiring) -> list[str]:
    """The whole QEMU command line, one list element for each argument."""
    facts = machine_facts()
    return [
        *(QEMU, "-machine", facts.type, *facts.options),
        *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
        *("-accel", _accelerator(machine)),
        *("-cpu", machine.cpu.qemu, "-smp", _topology(machine.smp), "-m", f"{machine.memory_mib}M"),
        *_clock(machine).qemu,
        *_start(machine).qemu,
        *("-kernel", str(machine.kernel), "-initrd", str(machine.initramfs)),
        *("-append", kernel_command_line(machine)),
        *("-chardev", _console(wiring), "-serial", "chardev:console"),
        *("-chardev", f"socket,id=monitor,fd={wiring.monitor}", "-mon", "chardev=monitor,mode=control"),
        *("-chardev", f"socket,id=agent,fd={wiring.agent}"),
        # Without ioeventfd QEMU answers a guest's notice at once, instead of when another of its threads gets to it:
        # what a guest does before anybody talks to it is then the same in every boot, to the instruction.
        *("-device", "virtio-serial-pci-non-transitional,max_ports=2,ioeventfd=off"),
        *("-device", f"virtserialport,chardev=agent,name={AGENT_PORT}"),
    ]


def _console(wiring: Wiring) -> str:
    log = escape(str(wiring.console))
    if wiring.terminal is None:
        return f"file,id=console,path={log}"
    return f"serial,id=console,path={escape(wiring.terminal)},logfile={log}"


def escape(value: str) -> str:
    """A value inside one of QEMU's comma-separated options; a comma is doubled."""
    return value.replace(",", ",,")


def _clock(machine: Machine) -> Settings:
    facts = machine_facts()
    return facts.instructions if machine.timing == "instructions" else facts.host_time


def _start(machine: Machine) -> Settings:
    # A second CPU is found through ACPI only, and so are the timers without which a busy host spoils the calibration.
    facts = machine_facts()
    quick = machine.drivers_built_in and machine.smp == 1 and not machine.keeps_time
    return facts.quick if quick else facts.standard


def _accelerator(machine: Machine) -> str:
    if machine.timing == "kvm":
        return "kvm"
    # With a thread for each virtual CPU, QEMU 7.2 goes on running stale translations of code that another virtual CPU
    # has patched: an int3 is in memory and never hit. One thread for all of them has not shown it.
    return "tcg,thread=single" if machine.smp > 1 else "tcg"


def _topology(smp: int) -> str:
    # Two threads of one core, as the machines with Hyper-Threading had; QEMU shows the guest siblings and the ht flag.
    return "1" if smp == 1 else f"{smp},sockets=1,cores={smp // 2},threads=2" if smp % 2 == 0 else str(smp)
