# SPDX-License-Identifier: GPL-2.0-only
"""A guest's machine, the QEMU command line that makes it, and QEMU's confinement on the host."""

from __future__ import annotations

import os
import re
import resource
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from orchestrator.arch import QEMU
from orchestrator.catalog.cpus import CpuCaches, CpuModel
from orchestrator.catalog.data import CatalogEntry, read
from orchestrator.errors import HostError, UsageError
from orchestrator.process import run
from orchestrator.program import PROGRAM

OLDEST_QEMU = (7, 0)
"""The first release with the pinned machine type."""

_ANSWER_LIMIT = 15.0
_VERSION = re.compile(r"version (\d+)\.(\d+)")
_HINT = (
    f"install QEMU {OLDEST_QEMU[0]}.{OLDEST_QEMU[1]} or newer (Debian: qemu-system-x86); `{PROGRAM} doctor` checks it"
)


@lru_cache(maxsize=1)
def qemu_version() -> str:
    """QEMU's version line. Raises HostError if QEMU is missing, does not run, or is too old."""
    finished = run([QEMU, "--version"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0 or not finished.stdout:
        raise HostError(f"QEMU does not run (status {finished.status})", detail=finished.complaint(), hint=_HINT)
    line = finished.stdout.splitlines()[0]
    if _release(line) < OLDEST_QEMU:
        raise HostError(f"the host's QEMU is too old: {line}", hint=_HINT)
    return line


def _release(line: str) -> tuple[int, int]:
    match = _VERSION.search(line)
    if match is None:
        raise HostError("QEMU prints no version", detail=[line], hint=_HINT)
    return int(match[1]), int(match[2])


_FAIR_TO_CPUS = (8, 1)
"""Since commit 83ecdb18eb65 each CPU has a part of the time to the next timer; before, one could use all of it up."""


def executes_spinning_cpus_in_turns() -> bool:
    """Whether QEMU executes all CPUs of the exact clock while one of them waits for another, without a ``pause``."""
    return _release(qemu_version()) >= _FAIR_TO_CPUS


@lru_cache(maxsize=1)
def qemu_cpu_names() -> frozenset[str]:
    """QEMU's CPU models. Raises HostError if QEMU is missing."""
    finished = run([QEMU, "-cpu", "help"], time_limit=_ANSWER_LIMIT)
    if finished.status != 0:
        what = f"QEMU does not list its CPU models (status {finished.status})"
        raise HostError(what, detail=finished.complaint(), hint=_HINT)
    listed = finished.stdout.split("Recognized CPUID flags")[0]
    return frozenset(re.findall(r"^(?:x86 )? *([A-Za-z0-9][A-Za-z0-9_.-]*)(?: |$)", listed, re.MULTILINE))


@lru_cache(maxsize=1)
def qemu_has_plugins() -> bool:
    """Whether QEMU was built with plugins, as Debian's is."""
    return "\n-plugin " in run([QEMU, "-help"], time_limit=_ANSWER_LIMIT).stdout


# QEMU's confinement on the host: its user, system calls, resources and environment.
#
# Started by root, QEMU opens its files as root and then becomes a user without rights (``-runas``). To start as that
# user it would need all files as descriptors: every layer of an image, a saved guest's memory reopened for writing, and
# ``/dev/kvm``, for which QEMU 7.2 has no such option.

USERS = range(60706, 61184)
"""Unassigned users and groups: unused in systemd's UIDS-GIDS, not yet assigned by Debian's policy."""

_RUN_WITH_USER = (9, 1)
"""The QEMU version that deprecates ``-runas``."""

_SYSTEM_CALLS = "on,obsolete=deny,elevateprivileges={},spawn=deny,resourcecontrol=deny"

_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_SELF = Path("/proc/self")

_DATA = 3 << 30
"""Bytes of private memory besides the guest's.

QEMU 7.2 was seen to take 1.3 GiB, 1 GiB of it for translated code; its maximum of 64 disk threads has stacks of half a
GiB."""

_STACK = 8 << 20
"""Bytes of a thread's stack, all of which count as private memory: with ``ulimit -s`` of 1 GiB QEMU had no room for
three threads."""

_FILES = 256
"""Open files; a restored guest with an image and an SSH connection has 20."""

_THREADS = 256
"""Threads of the user; QEMU starts at most 64 that wait for disks."""

_LISTS = ("PATH", "LD_LIBRARY_PATH")
_FOLDER = "QEMU_MODULE_DIR"
"""The variables that locate a user's own QEMU and its parts."""


@dataclass(frozen=True)
class Confinement:
    """``user`` is the user and group that QEMU becomes; None if it stays the one that starts it."""

    user: int | None = None

    def options(self) -> tuple[str, ...]:
        if self.user is None:
            return ("-sandbox", _SYSTEM_CALLS.format("deny"))
        # With these set to deny (or children), QEMU 7.2 is killed as it becomes the user: both forbid setuid(). Having
        # no capability and libseccomp's no_new_privs have the same effect as deny.
        number = f"{self.user}:{self.user}"
        drop = ("-run-with", f"user={number}") if _release(qemu_version()) >= _RUN_WITH_USER else ("-runas", number)
        return ("-sandbox", _SYSTEM_CALLS.format("allow"), *drop)

    def limits(self, memory_mib: int) -> Mapping[str, int]:
        """Resource limits, by prlimit's names, of a QEMU with so much guest memory; none exceeds the user's own."""
        pairs = {
            "core": (resource.RLIMIT_CORE, 0),  # a guest's memory contains keys
            "data": (resource.RLIMIT_DATA, (memory_mib << 20) + _DATA),
            "nofile": (resource.RLIMIT_NOFILE, _FILES),
            "stack": (resource.RLIMIT_STACK, _STACK),
        }
        if self.user is not None:  # without a user of its own, all the user's processes would count
            pairs["nproc"] = (resource.RLIMIT_NPROC, _THREADS)
        return {name: _at_most(limit, value) for name, (limit, value) in pairs.items()}


def confinement_here() -> Confinement:
    """The confinement for another QEMU of this process: a user of its own if started by root.

    A container may lack the user, or root's rights to become that user and kill its processes.
    """
    user = secrets.choice(USERS)
    can = os.geteuid() == 0 and all(_is_mapped(user, _SELF / name) for name in ("uid_map", "gid_map"))
    return Confinement(user if can and all(map(has_capability, (_CAP_KILL, _CAP_SETGID, _CAP_SETUID))) else None)


def environment() -> dict[str, str]:
    """QEMU's environment, with absolute folders, as QEMU runs in ``/``."""
    inherited = {name: os.environ[name] for name in (*_LISTS, _FOLDER) if os.environ.get(name)}
    parts = {name: value.split(os.pathsep) if name in _LISTS else [value] for name, value in inherited.items()}
    return {name: os.pathsep.join(map(os.path.abspath, folders)) for name, folders in parts.items()}


def has_capability(number: int) -> bool:
    """Whether this process has a capability in effect, by its number in capabilities(7)."""
    status = (_SELF / "status").read_text(encoding="ascii", errors="replace")
    return bool(int(status.partition("\nCapEff:")[2].split(maxsplit=1)[0], 16) >> number & 1)


def _is_mapped(number: int, mapping: Path) -> bool:
    ranges = (map(int, line.split()) for line in mapping.read_text(encoding="ascii").splitlines())
    return any(first <= number < first + count for first, _, count in ranges)


def _at_most(limit: int, value: int) -> int:
    soft, _ = resource.getrlimit(limit)
    return value if soft == resource.RLIM_INFINITY else min(value, soft)


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


AGENT_PORT = "orchestrator.agent"
"""The virtio serial port that the agent in the guest looks for."""

Timing = Literal["instructions", "tcg", "kvm"]
"""How a guest's time passes: counted instructions (exact), plain emulation, or the host's own CPU."""

ChannelKind = Literal["framed", "ssh", "serial"]
"""How commands get in: through the lab's agent, the image's sshd, or a shell on its console."""

_MEMORY = "pc.ram"
"""QEMU's name for a PC's memory, which a saved guest's state contains."""

ROOT_DISK = "root"
"""The serial number that identifies the image's disk in the guest."""

MODULES = "/lib/modules"
"""Where modprobe looks for a kernel's modules, by release."""

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


@dataclass(frozen=True)
class MemoryFile:
    """A file that is the guest's memory: shared with the guest, or a saved guest's, mapped privately."""

    path: str
    is_saved: bool


@dataclass(frozen=True)
class Wiring:
    """The host's side of a guest: open sockets (descriptor numbers), the console's log, the guest's own files.

    Starting QEMU makes the sockets of monitor and agent. With a ``terminal`` (a device's name or a socket's descriptor)
    the console is connected there too. Without a ``memory`` file QEMU allocates memory. With a saved guest's memory it
    waits for the devices' state, and with ``is_kept`` for a state that includes the memory.
    """

    monitor: int | str = 0
    agent: int | str = 0
    console: Path | str = ""
    terminal: str | int | None = None
    initramfs: Path | None = None
    overlay: Path | None = None
    memory: MemoryFile | None = None
    is_kept: bool = False
    confinement: Confinement = field(default_factory=Confinement)


def kernel_command_line(machine: Machine) -> str:
    """The command line of the guest's kernel."""
    facts = machine_facts()
    clock = _clock(machine).kernel_parameters
    start = _start(machine).kernel_parameters
    alone = facts.smp_kernel_on_one_cpu if machine.smp_kernel and machine.smp == 1 else []
    image = facts.own_init if machine.root is not None and machine.root.start == "own" else []
    # A console with a user's shell or a channel on it must not prompt for a login as well.
    quiet = facts.own_init_without_login if image and machine.channel != "serial" else []
    for word in machine.extra_parameters:  # outside of ASCII the kernel takes the byte 0xa0 for a space
        if not (word.isascii() and word.isprintable()) or " " in word or '"' in word:
            raise UsageError(f"found {word!r}; a kernel parameter has ASCII characters without spaces and quotes")
    replaced = {word.partition("=")[0] for word in machine.extra_parameters}
    usual = [word for word in facts.kernel_parameters if word.partition("=")[0] not in replaced]
    return " ".join([*usual, *start, *clock, *alone, *image, *quiet, *machine.extra_parameters])


def accelerator_option(machine: Machine) -> str:
    """The value of QEMU's option -accel.

    With a thread per virtual CPU, QEMU 7.2 keeps running stale translations of code that another virtual CPU has
    patched: an int3 is in memory and never hit. QEMU 10.0.13 does so too, less often. A single thread has not shown it.
    """
    if machine.timing == "kvm":
        return "kvm"
    return "tcg,thread=single" if machine.smp > 1 else "tcg"


def qemu_command(machine: Machine, wiring: Wiring) -> list[str]:
    """The whole QEMU command line, one list element per argument."""
    facts, memory = machine_facts(), wiring.memory
    smp = str(machine.smp)
    if machine.smp % 2 == 0:
        # Two threads of one core, as machines with Hyper-Threading had; QEMU shows siblings and the ht flag.
        smp += f",sockets=1,cores={machine.smp // 2},threads=2"
    command = [
        *(QEMU, "-machine", facts.type + ("" if memory is None else f",memory-backend={_MEMORY}")),
        *facts.options,
        *wiring.confinement.options(),
        *("-accel", accelerator_option(machine), "-cpu", machine.cpu.qemu, "-smp", smp, "-m", f"{machine.memory_mib}M"),
    ]
    if memory is not None:
        options = f"id={_MEMORY},size={machine.memory_mib}M,mem-path={escape(memory.path)}"
        share = "off" if memory.is_saved else "on"
        command += ("-object", f"memory-backend-file,{options},share={share}")
    if wiring.is_kept or (memory is not None and memory.is_saved):
        command += ("-incoming", "defer")
    command += [
        *_clock(machine).qemu,
        *(facts.in_turns.qemu if machine.smp > 1 and machine.timing == "instructions" else ()),
        *(facts.recorded.qemu if machine.works_alone and machine.timing == "instructions" else ()),
        *_start(machine).qemu,
        *("-kernel", str(machine.kernel), "-initrd", str(wiring.initramfs or machine.initramfs)),
        *("-append", kernel_command_line(machine)),
        *("-chardev", _console(wiring), "-serial", "chardev:console"),
        *("-chardev", f"socket,id=monitor,fd={wiring.monitor}", "-mon", "chardev=monitor,mode=control"),
        *("-chardev", f"socket,id=agent,fd={wiring.agent}"),
        *_device("serial", "max_ports=2"),
        *("-device", f"virtserialport,chardev=agent,name={AGENT_PORT}"),
        *(facts.stopping if machine.works_alone else ()),
    ]
    if machine.root is not None:
        # A guest gets an overlay, never the image itself, which it could write to.
        assert wiring.overlay is not None
        # An overlay is removed with its guest: writes need not reach the host's disk.
        command += _disk(ROOT_DISK, wiring.overlay, "qcow2", "cache.no-flush=on")
    for number, disk in enumerate(machine.data):
        command += _disk(data_disk_serial(number), disk.file, "raw", "read-only=on")
    if machine.channel == "ssh":
        # The guest reaches neither the host nor any network; the host reaches its sshd at a port that QEMU chooses, as
        # another process could take a free port found in advance.
        command += ("-netdev", "user,id=network,restrict=on,hostfwd=tcp:127.0.0.1:0-:22")
        command += _device("net", "netdev=network,romfile=")
    if machine.lan is not None:
        command += ("-netdev", f"dgram,id=lan,local.type=fd,local.str={machine.lan.descriptor}")
        command += _device("net", f"netdev=lan,mac={machine.lan.mac},romfile=")
    if machine.counter is not None:
        command += ("-plugin", _counter(machine.counter, counts_file(Path(wiring.console))))
    if machine.coverage is not None:
        out, code = escape(str(cover_file(Path(wiring.console)))), machine.coverage.code
        ranges = "".join(f",code={start:x}-{end:x}" for start, end in code)
        command += ("-plugin", f"file={escape(str(machine.coverage.file))},out={out}{ranges}")
    return command


def _device(kind: str, options: str) -> tuple[str, str]:
    # Without ioeventfd QEMU handles a guest's notification at once, not when another of its threads runs: until the
    # host sends its first request, a guest then executes the same instructions in every boot.
    return "-device", f"virtio-{kind}-pci-non-transitional,{options},ioeventfd=off"


def counts_file(console: Path) -> Path:
    """The output file of the counting plugin, for the guest with this console log."""
    return console.with_suffix(".counts")


def cover_file(console: Path) -> Path:
    """The same of the coverage plugin."""
    return console.with_suffix(".cover")


def _disk(serial: str, file: Path, format_: str, option: str) -> tuple[str, ...]:
    place = f"file.driver=file,file.filename={escape(str(file))}"
    block = ("-blockdev", f"{format_},node-name={serial},{option},{place}")
    return *block, *_device("blk", f"drive={serial},serial={serial}")


def data_disk_serial(number: int) -> str:
    """The serial number that identifies one of a guest's data disks."""
    return f"data{number}"


def _counter(counter: CountingPlugin, counts: Path) -> str:
    if counter.only_classes:
        return f"file={escape(str(counter.file))},out={escape(str(counts))},classes=on"
    more = (",detail=on" if counter.is_detailed else "") + (",stacks=on" if counter.has_stacks else "")
    more += ",order=on" if counter.has_order else ""
    more += f",together={counter.together_below:x}" if counter.together_below else ""
    more += f",landmarks={escape(str(counter.landmarks))}" if counter.landmarks is not None else ""
    for name, cache in ({} if counter.caches is None else counter.caches.all).items():
        more += f",{name}={cache.size}:{cache.ways}:{cache.line}"
    return f"file={escape(str(counter.file))},out={escape(str(counts))}{more}"


def _console(wiring: Wiring) -> str:
    log = escape(str(wiring.console))
    # A restored guest's log begins with what was printed before it was saved.
    append = wiring.memory is not None and wiring.memory.is_saved
    if wiring.terminal is None:
        return f"file,id=console,path={log}" + (",append=on" if append else "")
    log += ",logappend=on" if append else ""
    if isinstance(wiring.terminal, int):
        return f"socket,id=console,fd={wiring.terminal},logfile={log}"
    return f"serial,id=console,path={escape(wiring.terminal)},logfile={log}"


def escape(value: str) -> str:
    """A value inside one of QEMU's comma-separated options; commas are doubled."""
    return value.replace(",", ",,")


def _clock(machine: Machine) -> Settings:
    facts = machine_facts()
    return facts.instructions if machine.timing == "instructions" else facts.host_time


def _start(machine: Machine) -> Settings:
    # Only ACPI describes a second CPU, and the timers without which a busy host spoils the TSC's calibration.
    facts = machine_facts()
    quick = machine.drivers_built_in and machine.smp == 1 and not machine.keeps_time
    return facts.quick if quick else facts.standard
