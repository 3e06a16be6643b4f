# SPDX-License-Identifier: GPL-2.0-only
"""The QEMU command line that makes a guest's machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.arch import QEMU
from orchestrator.errors import UsageError
from orchestrator.guest.confinement import Confinement
from orchestrator.guest.machine import ROOT_DISK, CountingPlugin, Machine, Settings, machine_facts

AGENT_PORT = "orchestrator.agent"
"""The virtio serial port that the agent in the guest looks for."""

_MEMORY = "pc.ram"
"""QEMU's name for a PC's memory, which a saved guest's state contains."""


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
