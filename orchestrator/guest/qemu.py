# SPDX-License-Identifier: GPL-2.0-only
"""One QEMU and our ends of its sockets, from its start to its end: boot, console, panics, channels."""

from __future__ import annotations

import contextlib
import re
import select
import shlex
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, GuestExit, GuestHang, HostError, LabError
from orchestrator.guest.channel import Channel
from orchestrator.guest.console import QUOTED_LINES, Console, Trouble, plain_lines, sign_in
from orchestrator.guest.diagnosis import DYING_LIMIT, BootStub
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest_files import GuestFiles
from orchestrator.guest.machine import (
    MODULES,
    OLDEST_QEMU,
    Machine,
    Wiring,
    confinement_here,
    data_disk_serial,
    environment,
    qemu_command,
    qemu_version,
)
from orchestrator.guest.monitor import Monitor
from orchestrator.paths import data_dir
from orchestrator.process import Spawned, exit_status, how_ended, spawn
from orchestrator.program import PROGRAM

# Waits for the agent of a guest that boots, or does its work first, while what it prints is passed on.
#
# A kernel whose boot stub refuses the CPU ends the wait. A guest that works alone stops itself before its work, by
# QEMU's pvpanic device: at that instruction, so that what it executes does not depend on when the host looks.

LONGEST_WORK = 24 * 3600.0
"""Seconds that unattended work may take, whatever the guest prints meanwhile."""

_LISTENING_INTERVAL = 0.5


_STOPPING_INTERVAL = 0.1
"""The same until a guest has stopped itself: it does nothing while nobody looks."""


BootListener = Callable[[Sequence[str]], None]
"""Gets the console's new lines some times a second: none while the guest prints nothing."""


class OwnStop:
    """The stop of a guest before its work, where its machine has the device for it; ``read`` is called meanwhile."""

    def __init__(self, monitor: Monitor, read: Callable[[], None], *, is_expected: bool) -> None:
        self._monitor, self._read = monitor, read
        self._is_watched = self.is_expected = is_expected

    def check(self) -> None:
        """Let a guest that has stopped itself go on. One that stops once more has panicked, and is ended."""
        match self._monitor.command("query-status") if self._is_watched else None:
            case {"status": "guest-panicked"} if self.is_expected:
                self._read()
                self.is_expected = False
                self._monitor.command("cont")
            case {"status": "guest-panicked"}:
                self._monitor.command("quit")


def wait_for_boot(
    agent: FramedChannel,
    console: Console,
    stub: BootStub,
    stop: OwnStop,
    time_limit: float,
    listener: BootListener | None = None,
) -> None:
    """Wait for the agent. Raises GuestHang after ``time_limit``, UnsupportedError for a CPU that the kernel refuses.

    With a ``listener``, which gets every line of the console, each new output begins the time limit anew.
    """
    deadline, last = Deadline(time_limit), Deadline(LONGEST_WORK)
    passed_on = printed = 0
    while True:
        try:
            return agent.wait_for_agent(Deadline(_STOPPING_INTERVAL if stop.is_expected else _LISTENING_INTERVAL))
        except GuestHang:
            stub.check()
            stop.check()
            if listener is None and not deadline.left():
                raise
        finally:  # also the last lines of a guest that dies
            if listener is not None:
                lines, passed_on = console.whole_lines(passed_on)
                listener(lines)
        if listener is None:
            continue
        if (length := console.length()) > printed:
            printed, deadline = length, Deadline(time_limit)
        if not deadline.left():
            raise GuestHang(f"no console output for {time_limit:g} s")
        if not last.left():
            raise GuestHang(f"it is still at work after {LONGEST_WORK / 3600:g} hours, the most that are allowed")


# Has a guest's kernel panicked without a restart, or made QEMU write too much? Its QEMU is ended then, and whoever
# waits for the guest learns it.
#
# A panic ends QEMU by itself as a rule (``panic=-1`` restarts at once, and QEMU has -no-reboot). It does not where the
# guest has set ``kernel.panic`` to seconds, and where the panic itself fails: Linux 6.1 on i686 hangs in it after a
# double fault. Without a watch only a command's time limit ends that.
#
# Programs can print what looks like a panic, so a CPU has to stay in the kernel with its interrupts off as well, by
# QEMU's registers. That is not so where a guest has set ``kernel.panic`` to 0: panic() enables interrupts then.
#
# The limit of a process's files (RLIMIT_FSIZE) is none for QEMU: its threads block SIGXFSZ, and QEMU 7.2 goes on where
# a write of the console's log fails. So the files' sizes are looked at.

CONSOLE_MAX = 256 << 20
"""Bytes of the console's log, or of QEMU's messages; a night of a kernel's own tests prints a few megabytes."""

_WATCH_INTERVAL = 0.2
"""Seconds between two looks at the files; an emulated serial port prints a megabyte in it."""

_LOOKS = 5
_PAUSE = 0.1
"""Looks at the registers that find a CPU so, without a new byte on the console, and the seconds between two."""

# x86_cpu_dump_state() of QEMU 7.2 and 10.0, target/i386/cpu-dump.c.
_CPU = re.compile(
    r"\b[ER]FL=(?P<flags>[0-9a-f]{8}) \[[^\]]{1,10}\] CPL=(?P<ring>\d) II=\d A20=\d SMM=\d HLT=(?P<halted>\d)"
)
_INTERRUPTS = 0x200


class QemuWatch:
    """A thread that watches a QEMU until it is stopped, or has ended QEMU.

    ``exceeded`` is the file that has more than ``largest`` bytes; a panic is looked for once there is a ``monitor``.
    """

    def __init__(self, process: Spawned, console: Console, messages: Path, largest: int) -> None:
        self.largest = largest
        self.exceeded: Path | None = None
        self.monitor: Monitor | None = None
        self._process, self._console, self._files = process, console, (console.path, messages)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="QEMU's watch", daemon=True)
        self._thread.start()

    def stop(self, end: Callable[[], None]) -> None:
        """Watch no longer; ``end`` ends QEMU, for which the thread may be waiting."""
        self._stopped.set()
        end()
        self._thread.join()

    def _watch(self) -> None:
        mark = printed = 0
        has_panicked = False
        looks: list[set[int]] = []
        while not self._stopped.wait(_PAUSE if looks else _WATCH_INTERVAL):
            for file in self._files:
                with contextlib.suppress(OSError):  # not there yet, or on a file system that has gone
                    if file.stat().st_size > self.largest:
                        self.exceeded = file
                        self._process.kill()
                        return
            if not has_panicked:
                lines, mark = self._console.whole_lines(mark)
                has_panicked = any(sign_in(line) is Trouble.PANIC for line in lines)
            elif self.monitor is not None:
                try:
                    length, stuck = self._console.length(), _stuck_cpus(self.monitor)
                    looks = [*looks[-_LOOKS + 1 :], stuck] if length == printed and stuck else []
                    printed = length
                    if len(looks) == _LOOKS and set.intersection(*looks):
                        self.monitor.command("quit")
                        return
                except GuestError:  # QEMU has ended, as it should, or is being ended
                    looks, self.monitor = [], None


def _stuck_cpus(monitor: Monitor) -> set[int]:
    """The numbers of those that are in the kernel with interrupts off; none while the guest is paused."""
    match monitor.command("query-status"):
        case {"running": True}:
            return cpus_without_interrupts(monitor.human("info registers -a"))
    return set()


def cpus_without_interrupts(registers: str) -> set[int]:
    """The numbers of the CPUs in the kernel with interrupts off, by what QEMU says to ``info registers -a``.

    One that is halted so is off line, or was stopped by the one that panics, which never is halted.
    """
    cpus = enumerate(_CPU.finditer(registers))
    return {
        number
        for number, cpu in cpus
        if cpu["ring"] == "0" and cpu["halted"] == "0" and not int(cpu["flags"], 16) & _INTERRUPTS
    }


# A QEMU that ends before it has made the machine: no guest has run, so it is the host that lacks a usable QEMU.

_NO_MEMORY = "Cannot allocate memory"
_NO_SANDBOX = "-sandbox support is not enabled"


def start_failure(error: GuestError, command_line: Sequence[str], process: Spawned, messages: Path) -> LabError:
    """What to raise where QEMU's monitor did not answer: ``error`` where QEMU lives, or somebody has killed it."""
    status = exit_status(process, DYING_LIMIT)
    if status is None or status == -signal.SIGKILL:
        return error
    printed = Console(messages).last_lines(QUOTED_LINES)
    hint = (
        f"the lab needs a QEMU of {'.'.join(map(str, OLDEST_QEMU))} or newer that works: `{PROGRAM} doctor` examines it"
    )
    if any(_NO_MEMORY in line for line in printed):
        hint = (
            "allow more memory: QEMU wants 1 GiB of addresses for what it translates, besides the guest's (ulimit -v)"
        )
    if any(_NO_SANDBOX in line for line in printed):
        hint = "build QEMU with --enable-seccomp (libseccomp): the lab confines each guest's QEMU with it"
    return HostError(
        f"QEMU ended ({how_ended(status)}) before it had made the guest's machine; the host has {qemu_version()}",
        detail=[f"$ {shlex.join(command_line)}", *(printed or ["(no output)"])],
        hint=hint,
    )


_READ_MAX = 1 << 16


@contextlib.contextmanager
def drained(console: socket.socket) -> Iterator[None]:
    """Read and discard what the guest prints; the console's log has it.

    QEMU sends byte by byte, and a socket holds some hundreds of them. When it is full, the guest's port stays busy, and
    a program that prints is blocked: systemd for ever.
    """
    stop, stopped = socket.socketpair()

    def drain() -> None:
        poll = select.poll()
        for end in (console, stopped):
            poll.register(end, select.POLLIN)
        with contextlib.suppress(OSError):  # QEMU has gone; the next call that reads reports it
            while stopped.fileno() not in (number for number, _ in poll.poll()):
                if not console.recv(_READ_MAX):
                    return

    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.close()
        thread.join()
        stopped.close()


class RunningQemu:
    """QEMU's process, its monitor, and the sockets to the agent and to the console that a serial channel has.

    All are None before the start and after the end. ``messages`` is the file of what QEMU prints.
    """

    def __init__(self, messages: Path) -> None:
        self.messages = messages
        self.command_line: tuple[str, ...] = ()
        self.process: Spawned | None = None
        self.monitor: Monitor | None = None
        self.agent: FramedChannel | None = None
        self.console_end: socket.socket | None = None
        self.is_aborted = False
        self._watch: QemuWatch | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    @property
    def flood(self) -> GuestExit | None:
        """The error for a QEMU that was ended since it had written too much; None where that is not so."""
        if self._watch is None or self._watch.exceeded is None:
            return None
        file, largest = self._watch.exceeded, self._watch.largest
        what = f"the guest was ended: it had printed more than {largest / (1 << 20):g} MiB"
        hint = "what prints so much? The file has it all, and may be removed"
        return GuestExit(what, where=str(file), detail=Console(file).last_lines(5), hint=hint)

    def start(self, machine: Machine, wiring: Wiring, passed: Sequence[int], console_max: int) -> None:
        """Start QEMU and return when it has made the machine; by then it has opened all files of the ``wiring``.

        The sockets of the wiring are made here. ``passed`` are descriptors that QEMU inherits.
        QEMU is ended where the console's log, or its own messages, have more than ``console_max`` bytes. Raises
        HostError where QEMU ends before, GuestError where it was killed or does not answer.
        """
        pairs = [socket.socketpair() for _ in range(3 if machine.channel == "serial" else 2)]
        monitor, agent, *console = (ours for ours, _ in pairs)
        self.agent = FramedChannel(agent)
        self.console_end = console[0] if console else None
        try:
            ends = [theirs.fileno() for _, theirs in pairs]
            confinement = confinement_here()
            wiring = replace(wiring, monitor=ends[0], agent=ends[1], confinement=confinement)
            if console:
                wiring = replace(wiring, terminal=ends[2])
            self.command_line = tuple(qemu_command(machine, wiring))
            log = Path(wiring.console)
            log.touch()  # with the user's own umask, and not with QEMU's
            with self.messages.open("wb") as messages:
                self.process = spawn(
                    self.command_line,
                    limits=confinement.limits(machine.memory_mib),
                    environment=environment(),
                    stderr=messages,
                    pass_fds=[*ends, *passed],
                )
        finally:
            for _, theirs in pairs:
                theirs.close()
        if self.is_aborted:
            self.abort()
        self._watch = QemuWatch(self.process, Console(log), self.messages, console_max)
        try:
            self.monitor = self._watch.monitor = Monitor(monitor)
        except GuestError as error:
            self.check_aborted()
            raise start_failure(error, self.command_line, self.process, self.messages) from None

    def abort(self) -> None:
        """End QEMU from another thread, also one that is not started yet; our ends stay for their own thread."""
        self.is_aborted = True
        process = self.process  # another thread may end the guest meanwhile, and forget it
        if process is not None:
            process.kill()

    def drained_console(self) -> contextlib.AbstractContextManager[None]:
        return drained(self.console_end) if self.console_end is not None else contextlib.nullcontext()

    def check_aborted(self) -> None:
        if self.is_aborted:
            raise GuestError("the guest was ended before it had started")

    def hang_up(self) -> None:
        """Close the sockets to the guest. Its agent then resets the machine, which ends QEMU."""
        if self.agent is not None:
            self.agent.close()
        if self.console_end is not None:
            self.console_end.close()

    def kill(self) -> None:
        if self.process is not None and self._watch is not None:
            self._watch.stop(self.process.close)
        self.hang_up()
        if self.monitor is not None:
            self.monitor.close()
        self.process = self.agent = self.monitor = self.console_end = None


_LIMIT = 60.0
"""Host seconds for one command to the agent."""


def mount_data(agent: FramedChannel, machine: Machine) -> None:
    """Mount a guest's disks of data, and have modprobe where its kernel's modules are among them. Raises GuestError."""
    for number, disk in enumerate(machine.data):
        result = agent.run(["mount-data", data_disk_serial(number), disk.folder], time_limit=_LIMIT)
        if result.status == 0 and disk.folder.startswith(MODULES):
            script = (data_dir("images") / "guest" / "offer-modprobe.sh").read_text()
            result = agent.run(["sh", "-c", script], time_limit=_LIMIT)
        if result.status != 0:
            detail = plain_lines(result.stderr)[-QUOTED_LINES:]
            raise GuestError(f"the data disk {disk.name} cannot be mounted in the guest", detail=detail)


def open_channel(qemu: RunningQemu, machine: Machine, files: GuestFiles | None, deadline: Deadline) -> Channel:
    """The channel of a guest whose agent answers."""
    assert qemu.agent is not None
    if machine.channel == "ssh":
        assert files is not None
        assert files.keys is not None
        assert qemu.monitor is not None
        from orchestrator.guest.ssh import SshChannel  # takes a third of a second

        port = qemu.monitor.forwarded_port()
        ssse3 = b"ssse3" in qemu.agent.get("/proc/cpuinfo", time_limit=_LIMIT).split()
        return SshChannel.connect(port, files.keys.host, files.keys.client, deadline, ssse3=ssse3)
    if qemu.console_end is not None:
        from orchestrator.guest.serial import SerialChannel

        channel = SerialChannel(qemu.console_end)
        channel.login(machine.login.user, machine.login.password, deadline)
        return channel
    return qemu.agent
