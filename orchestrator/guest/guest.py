# SPDX-License-Identifier: GPL-2.0-only
"""A running guest: from off to ready to gone, and the verbs for what happens in between.

    off ── boot() ──> booting ──> ready ── power_off(), kill(), or its own death ──> gone
                                  │  ^
                          pause() v  │ resume()
                                 paused

The whole life is in this file; what a machine is made of is in ``machine``, what a guest has for itself in
``guest_files``, how commands travel in ``channel``, what the console means in ``console``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.errors import (
    CommandFailed,
    GuestConnectionLost,
    GuestError,
    GuestExit,
    GuestHang,
    GuestOops,
    GuestPanic,
)
from orchestrator.guest.channel import Channel, CommandResult, Listener
from orchestrator.guest.console import Console, Trouble, plain_lines
from orchestrator.guest.drain import drained
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest_files import GuestFiles, make_guest_files
from orchestrator.guest.interrupts import counted_interrupts
from orchestrator.guest.machine import Machine, Wiring, data_disk_serial, qemu_command
from orchestrator.guest.monitor import Monitor
from orchestrator.process import kill_group, spawn

BOOT_LIMIT = 180.0
"""Seconds from QEMU's start to the agent's first word; a Debian kernel takes seven on an idle core."""

LONGEST_WORK = 24 * 3600.0
"""Seconds that a guest's own work may take, whatever it says meanwhile."""

COMMAND_LIMIT = 60.0
_LISTENING_INTERVAL = 0.5
_QUOTED_BYTES = 4096
_DYING_LIMIT = 5.0
"""Seconds that QEMU may take to end after its guest has ended."""


class State(StrEnum):
    """Where in its life a guest is."""

    OFF = "off"
    BOOTING = "booting"
    READY = "ready"
    PAUSED = "paused"
    GONE = "gone"


class Guest:
    """One guest. Its console log and QEMU's own words go into ``directory``, as ``NAME.console`` and ``NAME.qemu``.

    Used as a context manager it boots on entry and is killed on exit. A guest belongs to the thread that boots it.
    """

    def __init__(self, machine: Machine, directory: Path, name: str = "guest", *, terminal: str | None = None) -> None:
        self.machine = machine
        self._terminal = terminal  # a device's name
        self._aborted = False
        self.console = Console(directory / f"{name}.console")
        self.state = State.OFF
        self.command_line: tuple[str, ...] = ()
        self._directory, self._name = directory, name
        self._messages = directory / f"{name}.qemu"
        self._process: subprocess.Popen[bytes] | None = None
        self._files: GuestFiles | None = None
        self._agent: FramedChannel | None = None
        self._channel: Channel | None = None
        self._console_end: socket.socket | None = None
        self._monitor: Monitor | None = None

    def __enter__(self) -> Self:
        self.boot()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int | None:
        """QEMU's process number while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def boot(self, time_limit: float = BOOT_LIMIT, said: Callable[[str], None] | None = None) -> None:
        """Start QEMU and wait for the agent. On failure nothing is left running; the error quotes the console.

        With ``said``, which gets every line of the console, the time limit is for how long the guest may be silent.
        """
        if self.state is not State.OFF:
            raise GuestError(f"a guest that is {self.state} cannot be booted")
        self.state = State.BOOTING
        try:
            with self._explained("booting"):
                self._start()
                deadline = time.monotonic() + time_limit
                with drained(self._console_end) if self._console_end is not None else contextlib.nullcontext():
                    self._wait_for_agent(time_limit, said)
                self._open_channel(deadline)
        except BaseException:
            self.kill()
            raise
        self.state = State.READY

    def run(
        self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT, listener: Listener | None = None
    ) -> CommandResult:
        """Run a program in the guest to its end, whatever its status. A ``listener`` gets its output as it comes."""
        with self._explained(f"running {argv[0] if argv else 'nothing'}"):
            return self._commands.run(argv, time_limit=time_limit, listener=listener)

    def succeed(self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT) -> CommandResult:
        """Run a program that must end with status 0. Raises CommandFailed with what it printed."""
        result = self.run(argv, time_limit=time_limit)
        if result.status != 0:
            said = plain_lines((result.stderr or result.stdout)[-_QUOTED_BYTES:])[-10:]
            raise CommandFailed(f"`{' '.join(argv)}` ended with status {result.status} in the guest", detail=said)
        return result

    def put(self, content: bytes | Path, target: str, *, mode: int = 0o644, time_limit: float = COMMAND_LIMIT) -> None:
        """Write a file in the guest, from bytes or from a file of the host."""
        with self._explained(f"writing {target}"):
            self._commands.put(content, target, mode=mode, time_limit=time_limit)

    def get(self, source: str, *, time_limit: float = COMMAND_LIMIT) -> bytes:
        """Read a file of the guest."""
        with self._explained(f"reading {source}"):
            return self._commands.get(source, time_limit=time_limit)

    def read_memory(self, address: int, size: int) -> bytes:
        """Bytes of the guest's kernel memory, read by QEMU: what is really there, whatever the guest says."""
        if self._monitor is None:
            raise GuestError(f"a guest that is {self.state} has no memory to read")
        with self._explained("reading memory"):
            return self._monitor.read_memory(address, size)

    @contextlib.contextmanager
    def counted_interrupts(self) -> Iterator[Counter[int]]:
        """Count the traps and interrupts that the guest's kernel takes meanwhile, by vector, from outside."""
        if self._monitor is None:
            raise GuestError(f"a guest that is {self.state} takes no interrupts")
        with counted_interrupts(self._monitor) as counts:
            yield counts

    def check_console(self, mark: int = 0) -> None:
        """Raise GuestOops when the kernel has reported trouble since ``mark`` (a ``console.length()``)."""
        trouble = self.console.trouble(mark)
        if trouble is not None:
            raise GuestOops(f"the guest's kernel reported trouble ({trouble[0]})", detail=trouble[1])

    def pause(self) -> None:
        """Stop the guest's CPUs and clock. On the exact clock an idle guest keeps the host as busy as a working one."""
        self._control(State.READY, "stop", State.PAUSED)

    def resume(self) -> None:
        """Let a paused guest go on; for the guest no time has passed."""
        self._control(State.PAUSED, "cont", State.READY)

    def power_off(self) -> None:
        """End the guest in order: the agent resets the machine when its host hangs up, and QEMU ends with it."""
        self._hang_up()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_DYING_LIMIT)
        self.kill()

    def kill(self) -> None:
        """End the guest at once. Does nothing to one that is off or gone."""
        if self._process is not None:
            kill_group(self._process)
        self._hang_up()
        if self._monitor is not None:
            self._monitor.close()
        if self._files is not None:
            self._files.remove()
        self._process = self._channel = self._agent = self._monitor = self._files = None
        self.state = State.GONE

    def abort(self) -> None:
        """End QEMU from another thread than the guest's own, which finds its connection lost and cleans up."""
        self._aborted = True  # also what is only about to start
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _hang_up(self) -> None:
        for channel in (self._channel, self._agent):
            if channel is not None:
                channel.close()
        if self._console_end is not None:
            self._console_end.close()

    def _wait_for_agent(self, time_limit: float, said: Callable[[str], None] | None) -> None:
        agent = self._agent
        assert agent is not None
        start = time.monotonic()
        deadline, passed_on, printed, waiting = start + time_limit, 0, 0, True
        while waiting:
            until = deadline if said is None else time.monotonic() + _LISTENING_INTERVAL
            try:
                agent.wait_for_agent(until)
                waiting = False
            except GuestHang:
                if said is None:
                    raise
            finally:
                if said is not None:  # also the last words of one that dies
                    lines, passed_on = self.console.whole_lines(passed_on)
                    for line in lines:
                        said(line)
            length, now = self.console.length(), time.monotonic()
            if length > printed:
                printed, deadline = length, now + time_limit
            if waiting and now >= deadline:
                raise GuestHang(f"it has said nothing for {time_limit:g} s")
            if waiting and now >= start + LONGEST_WORK:
                raise GuestHang(f"it is still at work after {LONGEST_WORK / 3600:g} hours, the most that are allowed")

    def _control(self, before: State, command: str, after: State) -> None:
        if self._monitor is None or self.state is not before:
            raise GuestError(f"a guest that is {self.state} does not become {after}")
        with self._explained(f"becoming {after}"):
            self._monitor.command(command)
        self.state = after

    @property
    def _commands(self) -> Channel:
        if self._channel is None or self.state is State.PAUSED:
            raise GuestError(f"a guest that is {self.state} takes no commands")
        return self._channel

    def _start(self) -> None:
        machine = self.machine
        initramfs = overlay = None
        if machine.disk_drivers is not None:
            self._files = make_guest_files(machine, self._directory, self._name)
            initramfs, overlay = self._files.initramfs, self._files.overlay
        pairs = [socket.socketpair() for _ in range(3 if machine.channel == "serial" else 2)]
        monitor, agent, *console = (ours for ours, _ in pairs)
        self._agent = FramedChannel(agent)
        self._console_end = console[0] if console else None
        try:
            passed = [theirs.fileno() for _, theirs in pairs]
            terminal = passed[2] if console else self._terminal
            wiring = Wiring(passed[0], passed[1], self.console.path, terminal, initramfs, overlay)
            self.command_line = tuple(qemu_command(machine, wiring))
            with self._messages.open("wb") as messages:
                self._process = spawn(self.command_line, stderr=messages, pass_fds=passed)
        finally:
            for _, theirs in pairs:
                theirs.close()
        if self._aborted:
            self.abort()
        self._monitor = Monitor(monitor)
        # It answers when the machine is made. QEMU has all files open by then, and whatever ends us leaves none behind.
        if self._files is not None:
            self._files.remove()

    def _open_channel(self, deadline: float) -> None:
        """Open the channel that commands go through, which may be another than the agent's."""
        assert self._agent is not None
        self._channel = self._agent
        for number, disk in enumerate(self.machine.data):
            argv = ["mount-data", data_disk_serial(number), f"/data/{disk.name}"]
            result = self._agent.run(argv, time_limit=COMMAND_LIMIT)
            if result.status != 0:
                said = plain_lines(result.stderr[-_QUOTED_BYTES:])
                raise GuestError(f"the data disk {disk.name} cannot be mounted in the guest", detail=said[-10:])
        if self.machine.channel == "ssh":
            keys = self._files.keys if self._files is not None else None
            assert keys is not None
            assert self._monitor is not None
            from orchestrator.guest.ssh import SshChannel  # takes a third of a second

            port = self._monitor.forwarded_port()
            flags = self._agent.get("/proc/cpuinfo", time_limit=COMMAND_LIMIT).split()
            ssse3 = b"ssse3" in flags
            self._channel = SshChannel.connect(port, keys.host, keys.client, deadline, ssse3=ssse3)
        if self._console_end is not None:
            from orchestrator.guest.serial import SerialChannel

            channel = self._channel = SerialChannel(self._console_end)
            channel.login(self.machine.login.user, self.machine.login.password, deadline)

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn a broken channel or a hang into what has really happened to the guest."""
        try:
            yield
        except GuestHang as error:
            trouble = self.console.trouble()
            if trouble is not None and trouble[0] is Trouble.PANIC:
                raise GuestPanic(f"the guest's kernel panicked while {doing}", detail=trouble[1]) from None
            hint = "its kernel may be spinning with interrupts off; the console's log may tell"
            raise GuestHang(
                f"the guest hangs ({doing}): {error.what}",
                where=str(self.console.path),
                detail=self.console.last_lines(),
                hint=error.hint or hint,
            ) from None
        except GuestConnectionLost as error:
            raise self._cause(doing, error) from None
        except GuestError as error:
            # QEMU that has gone cannot be asked for anything: say so rather than what could not be asked.
            if self._process is not None and self._exit_status(0.2) is not None:
                raise self._cause(doing, GuestConnectionLost(error.what)) from None
            raise

    def _cause(self, doing: str, lost: GuestConnectionLost) -> GuestError:
        status = self._exit_status(_DYING_LIMIT)
        trouble = self.console.trouble()
        if trouble is not None and trouble[0] is Trouble.PANIC:
            return GuestPanic(f"the guest's kernel panicked while {doing}", detail=trouble[1])
        where, lines = str(self.console.path), self.console.last_lines()
        if status is None:
            what = f"lost the connection to the guest while {doing}: {lost.what}; QEMU is still running"
            return GuestConnectionLost(what, where=where, detail=lines)
        said = self._messages.read_text(errors="replace").splitlines()[-10:] if self._messages.exists() else []
        how = f"status {status}" if status >= 0 else f"signal {-status}"
        hint = "" if status == 0 else "QEMU's own words come first above, then the console's last lines"
        ended = GuestExit(
            f"QEMU ended ({how}) while {doing}", where=where, detail=[*said, *lines] or ["(it said nothing)"], hint=hint
        )
        ended.status = status
        return ended

    def _exit_status(self, patience: float) -> int | None:
        if self._process is None:
            return None
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None
