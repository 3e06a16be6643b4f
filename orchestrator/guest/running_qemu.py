# SPDX-License-Identifier: GPL-2.0-only
"""One QEMU and our ends of its sockets, from its start to its end; what the guest in it does is not known here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import GuestError
from orchestrator.guest.diagnosis import DYING_LIMIT
from orchestrator.guest.drain import drained
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.machine import Machine, MemoryFile, Wiring, qemu_command
from orchestrator.guest.monitor import Monitor
from orchestrator.process import exit_status, kill_group, spawn


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
        self.process: subprocess.Popen[bytes] | None = None
        self.monitor: Monitor | None = None
        self.agent: FramedChannel | None = None
        self.console_end: socket.socket | None = None
        self.is_aborted = False

    @property
    def pid(self) -> int | None:
        """The process number while it runs."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def start(self, machine: Machine, files: HostFiles) -> None:
        """Start QEMU and return when it has made the machine; by then it has opened all files. Raises GuestError."""
        pairs = [socket.socketpair() for _ in range(3 if machine.channel == "serial" else 2)]
        monitor, agent, *console = (ours for ours, _ in pairs)
        self.agent = FramedChannel(agent)
        self.console_end = console[0] if console else None
        try:
            ends = [theirs.fileno() for _, theirs in pairs]
            terminal = ends[2] if console else files.terminal
            own = (files.initramfs, files.overlay, files.memory, files.is_kept)
            wiring = Wiring(ends[0], ends[1], files.console, terminal, *own)
            self.command_line = tuple(qemu_command(machine, wiring))
            with self.messages.open("wb") as messages:
                self.process = spawn(self.command_line, stderr=messages, pass_fds=[*ends, *files.passed])
        finally:
            for _, theirs in pairs:
                theirs.close()
        if self.is_aborted:
            self.abort()
        self.monitor = Monitor(monitor)

    def abort(self) -> None:
        """End QEMU from another thread, also one that is not started yet; our ends stay for their own thread."""
        self.is_aborted = True
        process = self.process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

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
        if self.process is not None:
            kill_group(self.process)
        self.hang_up()
        if self.monitor is not None:
            self.monitor.close()
        self.process = self.agent = self.monitor = self.console_end = None
