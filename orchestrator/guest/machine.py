# SPDX-License-Identifier: GPL-2.0-only
"""A guest's machine: its CPU, memory, disks, network and plugins, and the facts of machines in ``machine.yaml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from orchestrator.catalog.cpus import CpuCaches, CpuModel
from orchestrator.catalog.data import CatalogEntry, read


class Settings(CatalogEntry):
    """QEMU arguments and kernel parameters of a clock or a start method."""

    qemu: list[str]
    kernel_parameters: list[str]


class MachineFacts(CatalogEntry):
    """QEMU's machine type and fixed options, kernel parameters, and the settings of clocks and start methods."""

    type: str
    options: list[str]
    kernel_parameters: list[str]
    smp_kernel_on_one_cpu: list[str]
    own_init: list[str]
    own_init_without_login: list[str]
    standard: Settings
    quick: Settings
    host_time: Settings
    instructions: Settings
    in_turns: Settings
    recorded: Settings
    stopping: list[str]


@lru_cache(maxsize=1)
def machine_facts() -> MachineFacts:
    """The facts of ``machine.yaml``."""
    return MachineFacts.model_validate(read("machine.yaml"))


Timing = Literal["instructions", "tcg", "kvm"]
"""How a guest's time passes: counted instructions (exact), plain emulation, or the host's own CPU."""

ChannelKind = Literal["framed", "ssh", "serial"]
"""How commands get in: through the lab's agent, the image's sshd, or a shell on its console."""


ROOT_DISK = "root"
"""The serial number that identifies the image's disk in the guest."""

MODULES = "/lib/modules"
"""Where modprobe looks for a kernel's modules, by release."""
HEADERS = "/usr/src/lab-kernel-headers"
"""Where a guest whose image has tools that compile has the headers of its kernel."""

Start = Literal["small", "own"]
"""Process 1 of an image: the lab's agent, or the image's own /sbin/init."""


@dataclass(frozen=True)
class RootImage:
    """A disk image with a root file system. It is never written to: each guest gets its own overlay.

    ``key`` identifies its content; ``packages`` are names and versions, if known. ``is_users``: a disk that no recipe
    made.
    """

    name: str
    key: str
    base: Path
    format: Literal["qcow2", "raw"]
    start: Start = "small"
    packages: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    is_users: bool = False


@dataclass(frozen=True)
class DataDisk:
    """A squashfs mounted read-only in the guest, at ``/data/NAME`` or at ``place``."""

    name: str
    file: Path
    place: str = ""

    @property
    def folder(self) -> str:
        return self.place or f"/data/{self.name}"


@dataclass(frozen=True)
class Login:
    """The login on an image's console."""

    user: str = "root"
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Lan:
    """A guest's place on a private network (see ``Hub``): QEMU's socket, and a number counted from 1."""

    descriptor: int
    number: int

    @property
    def mac(self) -> str:
        return f"52:54:00:4c:41:{self.number:02x}"

    @property
    def address(self) -> str:
        return f"192.168.77.{self.number}"


@dataclass(frozen=True)
class CountingPlugin:
    """A QEMU plugin that counts between a program's marks (``images/plugin``).

    With ``each_cpu`` it is the plugin for several CPUs (``images/plugin/cpus.c``), which has no other options. With
    ``only_classes`` it counts instructions by class (``images/plugin/classes.h``), which costs next to nothing.
    Details are loads, stores and taken branches; they cost more, stacks too, and models of ``caches`` most. The order
    of blocks of code comes with stacks.
    Instructions below the address ``together_below`` are counted as one. With the file of ``landmarks``, stacks are
    those of whole programs. It writes into the guest's file ``NAME.counts``, and changes nothing that the guest could
    notice.
    """

    file: Path
    each_cpu: bool = False
    only_classes: bool = False
    is_detailed: bool = False
    has_stacks: bool = False
    has_order: bool = False
    together_below: int = 0
    caches: CpuCaches | None = None
    landmarks: Path | None = None


@dataclass(frozen=True)
class CoveragePlugin:
    """A QEMU plugin that counts each executed instruction in ranges of addresses, into the guest's file ``NAME.cover``.

    A range ends before its second address. It changes nothing that the guest could notice.
    """

    file: Path
    code: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Machine:
    """A machine and what it boots; everything that a guest's behaviour depends on. ``memory_mib`` in MiB.

    ``keeps_time`` is for guests whose nanoseconds are used: they get timers that calibrate their TSC, and boot slower.
    ``works_alone`` is for unattended guests: the host sends them nothing until their work is done. Without a ``root`` a
    guest stays in its initramfs. ``disk_drivers`` is the additional archive for a guest with disks.
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
    works_alone: bool = False
    extra_parameters: tuple[str, ...] = ()
    root: RootImage | None = None
    data: tuple[DataDisk, ...] = ()
    disk_drivers: Path | None = None
    channel: ChannelKind = "framed"
    login: Login = field(default_factory=Login)
    lan: Lan | None = None
    counter: CountingPlugin | None = None
    coverage: CoveragePlugin | None = None

    @property
    def counts_code(self) -> bool:
        """Whether its QEMU counts each instruction by its address."""
        return self.counter is not None and not (self.counter.only_classes or self.counter.each_cpu)
