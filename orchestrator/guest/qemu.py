# SPDX-License-Identifier: GPL-2.0-only
"""One QEMU and the lab's ends of its sockets, from start to end: boot, console, panics, channels."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, GuestExit
from orchestrator.guest.channel import Channel
from orchestrator.guest.confinement import confinement_here, environment
from orchestrator.guest.console import QUOTED_LINES, Console, plain_lines
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest_files import GuestFiles
from orchestrator.guest.machine import MODULES, Machine
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.panic_watch import QemuWatch
from orchestrator.guest.qemu_command import Wiring, data_disk_serial, qemu_command
from orchestrator.guest.rest import Rest
from orchestrator.guest.start_failure import start_failure
from orchestrator.paths import data_dir
from orchestrator.process import Spawned, spawn

_READ_MAX = 1 << 16


@contextlib.contextmanager
def drained(console: socket.socket) -> Iterator[None]:
    """Read and discard what the guest prints; the console's log has it.

    QEMU sends byte by byte, and a socket holds some hundreds of them. When it is full, the guest's port stays busy, and
    programs that print block: systemd for ever.
    """
    stop, stopped = socket.socketpair()

    def drain() -> None:
        poll = select.poll()
        for end in (console, stopped):
            poll.register(end, select.POLLIN)
        with contextlib.suppress(OSError):  # QEMU is gone; the next read reports it
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
    """QEMU's process, its monitor, and the sockets to the agent and to a serial channel's console.

    All are None before the start and after the end. ``messages`` is the file of QEMU's output.
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
        self._rest: Rest | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    @property
    def flood(self) -> GuestExit | None:
        """The error for a QEMU that was ended for too much output, else None."""
        if self._watch is None or self._watch.exceeded is None:
            return None
        file, largest = self._watch.exceeded, self._watch.largest
        what = f"the guest was ended: it had printed more than {largest / (1 << 20):g} MiB"
        hint = "the file shows what prints so much; it may be removed"
        return GuestExit(what, where=str(file), detail=Console(file).last_lines(5), hint=hint)

    def start(self, machine: Machine, wiring: Wiring, passed: Sequence[int], console_max: int) -> None:
        """Start QEMU and return when it has made the machine; by then it has opened all files of the ``wiring``.

        Makes the wiring's sockets. ``passed`` are descriptors that QEMU inherits. QEMU is ended if the console's log or
        its own messages exceed ``console_max`` bytes. Raises HostError if QEMU ends early, GuestError if it was killed
        or does not answer.
        """
        pairs = [socket.socketpair() for _ in range(3 if machine.channel == "serial" else 2)]
        monitor, agent, *console = (ours for ours, _ in pairs)
        self.agent = FramedChannel(agent, self.awake)
        self.console_end = console[0] if console else None
        try:
            ends = [theirs.fileno() for _, theirs in pairs]
            confinement = confinement_here()
            wiring = replace(wiring, monitor=ends[0], agent=ends[1], confinement=confinement)
            if console:
                wiring = replace(wiring, terminal=ends[2])
            self.command_line = tuple(qemu_command(machine, wiring))
            log = Path(wiring.console)
            log.touch()  # with the user's umask, not QEMU's
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

    def wait_before_end(self, call: Callable[[], None]) -> None:
        """Call this from another thread when the guest has panicked or reset itself, before QEMU ends."""
        assert self.monitor is not None
        assert self._watch is not None
        self._watch.before_end = call
        self.monitor.command("set-action", shutdown="pause")

    def rest_when_idle(self) -> None:
        """Stop the guest's CPUs from now on while nothing is asked of it."""
        assert self.monitor is not None
        assert self.process is not None
        self._rest = Rest(self.monitor, self.process.pid)

    def never_rest(self) -> None:
        """Leave the guest's CPUs from now on as they are, stopped or not."""
        if self._rest is not None:
            self._rest.end()
        self._rest = None

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """The guest runs meanwhile."""
        rest = self._rest
        if rest is not None:
            rest.hold()
        try:
            yield
        finally:
            if rest is not None:
                rest.release()

    def abort(self) -> None:
        """End QEMU from another thread, even if not started yet; the lab's ends stay open for their own thread."""
        self.is_aborted = True
        process = self.process  # another thread may reset it meanwhile
        if process is not None:
            process.kill()

    def drained_console(self) -> contextlib.AbstractContextManager[None]:
        return drained(self.console_end) if self.console_end is not None else contextlib.nullcontext()

    def check_aborted(self) -> None:
        if self.is_aborted:
            raise GuestError("the guest was ended before it had started")

    def hang_up(self) -> None:
        """Close the sockets to the guest. Its agent then resets the machine, which ends QEMU."""
        with self.awake():
            self.never_rest()
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
    """Mount a guest's data disks, and make a disk of its kernel's modules known to modprobe. Raises GuestError."""
    for number, disk in enumerate(machine.data):
        result = agent.run(["mount-data", data_disk_serial(number), disk.folder], time_limit=_LIMIT)
        if result.status == 0 and disk.folder.startswith(MODULES):
            script = (data_dir("images") / "guest" / "offer-modprobe.sh").read_text()
            result = agent.run(["sh", "-c", script], time_limit=_LIMIT)
        if result.status != 0:
            detail = plain_lines(result.stderr)[-QUOTED_LINES:]
            raise GuestError(f"the data disk {disk.name} cannot be mounted in the guest", detail=detail)


def open_channel(qemu: RunningQemu, machine: Machine, files: GuestFiles | None, deadline: Deadline) -> Channel:
    """Open the channel of a guest whose agent answers."""
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
