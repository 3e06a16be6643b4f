# SPDX-License-Identifier: GPL-2.0-only
"""One QEMU and our ends of its sockets, from its start to its end; what the guest in it does is not known here."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import GuestError, GuestExit
from orchestrator.guest.confinement import confinement_here, environment
from orchestrator.guest.console import Console
from orchestrator.guest.console_bound import CONSOLE_MAX, ConsoleBound
from orchestrator.guest.diagnosis import DYING_LIMIT
from orchestrator.guest.drain import drained
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.machine import Machine, MemoryFile, Wiring, qemu_command
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.start_failure import start_failure
from orchestrator.process import Spawned, exit_status, spawn

_QUOTED_LINES = 5


@dataclass(frozen=True)
class HostFiles:
    """The files of the host that a QEMU opens: the console's log, and what the guest has of its own.

    ``terminal`` is a device that the console is on as well. ``passed`` are descriptors that QEMU inherits. ``is_kept``
    for a guest whose memory comes with the state of its devices.
    """

    console: Path
    terminal: str | None = None
    initramfs: Path | None = None
    overlay: Path | None = None
    memory: MemoryFile | None = None
    passed: Sequence[int] = field(default=())
    is_kept: bool = False


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
        self._bound: ConsoleBound | None = None

    @property
    def pid(self) -> int | None:
        """The process number while it runs."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    @property
    def flood(self) -> GuestExit | None:
        """The error for a QEMU that was ended since it had written too much; None where that is not so."""
        if self._bound is None or self._bound.exceeded is None:
            return None
        file, largest = self._bound.exceeded, self._bound.largest
        what = f"the guest was ended: it had printed more than {largest / (1 << 20):g} MiB"
        hint = "what prints so much? The file has it all, and may be removed"
        return GuestExit(what, where=str(file), detail=Console(file).last_lines(_QUOTED_LINES), hint=hint)

    def start(self, machine: Machine, files: HostFiles, console_max: int = CONSOLE_MAX) -> None:
        """Start QEMU and return when it has made the machine; by then it has opened all files.

        QEMU is ended where the console's log, or its own messages, have more than ``console_max`` bytes. Raises
        HostError where QEMU ends before, GuestError where it was killed or does not answer.
        """
        pairs = [socket.socketpair() for _ in range(3 if machine.channel == "serial" else 2)]
        monitor, agent, *console = (ours for ours, _ in pairs)
        self.agent = FramedChannel(agent)
        self.console_end = console[0] if console else None
        try:
            ends = [theirs.fileno() for _, theirs in pairs]
            terminal = ends[2] if console else files.terminal
            own = (_absolute(files.initramfs), _absolute(files.overlay), files.memory, files.is_kept)
            confinement = confinement_here()
            wiring = Wiring(ends[0], ends[1], files.console.absolute(), terminal, *own, confinement)
            self.command_line = tuple(qemu_command(machine, wiring))
            files.console.touch()  # with the user's own umask, and not with QEMU's
            with self.messages.open("wb") as messages:
                self.process = spawn(
                    self.command_line,
                    limits=confinement.limits(machine.memory_mib),
                    environment=environment(),
                    stderr=messages,
                    pass_fds=[*ends, *files.passed],
                )
        finally:
            for _, theirs in pairs:
                theirs.close()
        if self.is_aborted:
            self.abort()
        self._bound = ConsoleBound([files.console, self.messages], console_max, self._end)
        try:
            self.monitor = Monitor(monitor)
        except GuestError as error:
            self.check_aborted()
            raise start_failure(error, self.command_line, self.process, self.messages) from None

    def abort(self) -> None:
        """End QEMU from another thread, also one that is not started yet; our ends stay for their own thread."""
        self.is_aborted = True
        self._end()

    def _end(self) -> None:
        process = self.process  # another thread may end the guest meanwhile, and forget it
        if process is not None:
            process.kill()

    def drained_console(self) -> contextlib.AbstractContextManager[None]:
        """Drain the console that a serial channel will read."""
        return drained(self.console_end) if self.console_end is not None else contextlib.nullcontext()

    def check_aborted(self) -> None:
        """Raise GuestError where another thread has ended it."""
        if self.is_aborted:
            raise GuestError("the guest was ended before it had started")

    def hang_up(self) -> None:
        """Close the sockets to the guest. Its agent then resets the machine, which ends QEMU."""
        if self.agent is not None:
            self.agent.close()
        if self.console_end is not None:
            self.console_end.close()

    def wait(self) -> None:
        """Wait for QEMU's end, some seconds at most."""
        if self.process is not None:
            exit_status(self.process, DYING_LIMIT)

    def kill(self) -> None:
        """End QEMU at once."""
        if self._bound is not None:
            self._bound.stop()
        if self.process is not None:
            self.process.close()
        self.hang_up()
        if self.monitor is not None:
            self.monitor.close()
        self.process = self.agent = self.monitor = self.console_end = None


def _absolute(file: Path | None) -> Path | None:
    """A file's path for QEMU, which is in another folder."""
    return None if file is None else file.absolute()
