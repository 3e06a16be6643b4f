# SPDX-License-Identifier: GPL-2.0-only
"""A running guest: from off to ready to gone, and the verbs for what happens in between.

    off ── boot() ──> booting ──> ready ── power_off(), kill(), or its own death ──> gone
                                  │  ^
                          pause() v  │ resume()
                                 paused

The whole life is in this file; what a machine is made of is in ``machine``, the files of one guest in ``guest_files``,
how commands travel in ``channel``, what the console means in ``console``, why a guest failed in ``diagnosis``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
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

from orchestrator.errors import CommandFailed, GuestError, GuestHang
from orchestrator.guest.channel import Channel, CommandResult, Listener
from orchestrator.guest.console import Console, plain_lines
from orchestrator.guest.diagnosis import DYING_LIMIT, cause_of, trouble_of
from orchestrator.guest.drain import drained
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest_files import GuestFiles, make_guest_files
from orchestrator.guest.interrupts import counted_interrupts
from orchestrator.guest.kernel_tests import kunit_results
from orchestrator.guest.machine import Machine, Wiring, data_disk_serial, qemu_command
from orchestrator.guest.monitor import Monitor
from orchestrator.ktap.results import TestRun
from orchestrator.process import kill_group, spawn
from orchestrator.steps import step

BOOT_LIMIT = 180.0
"""Seconds from QEMU's start to the agent's first frame; a Debian kernel takes seven on an idle core."""

LONGEST_WORK = 24 * 3600.0
"""Seconds that unattended work may take, whatever the guest prints meanwhile."""

COMMAND_LIMIT = 60.0
"""Host seconds for a command, a file, or a condition to become true."""

_POLL_PAUSE = ("sleep", "0.1")
"""Runs in the guest between two polls: on the exact clock, guest time stands still while the guest is idle."""

_REPORTS_MAX = 100
"""Reports that are looked at: a kernel that is broken can repeat one for ever."""

_DRAINING_LIMIT = 10.0
"""Host seconds for the agent to write a line; and without a new one on the console, for that line to come."""

_DRAINING_BYTES = 2 << 20
"""Bytes on the console among which that line is: a kernel's log buffer has 128 or 256 KiB (CONFIG_LOG_BUF_SHIFT)."""

_DRAINING_PAUSE = 0.01
_LISTENING_INTERVAL = 0.5
_LAST_ATTEMPT_LIMIT = 1.0
"""Host seconds that the last poll of a condition gets at least."""

_QUOTED_BYTES = 4096
_QUOTED_LINES = 10


class State(StrEnum):
    """Where in its life a guest is."""

    OFF = "off"
    BOOTING = "booting"
    READY = "ready"
    PAUSED = "paused"
    GONE = "gone"


class Guest:
    """One guest. Its console log and QEMU's messages go into ``directory``, as ``NAME.console`` and ``NAME.qemu``.

    Used as a context manager it boots on entry and is killed on exit. A guest belongs to the thread that boots it.
    ``expected_reports`` are patterns: what its kernel reports is no trouble where one of them is found in the report.
    """

    def __init__(self, machine: Machine, directory: Path, name: str = "guest", *, terminal: str | None = None) -> None:
        self.machine = machine
        self._terminal = terminal  # a device's name
        self._aborted = False
        self.console = Console(directory / f"{name}.console")
        self.expected_reports: Sequence[re.Pattern[str]] = ()
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

    def boot(self, time_limit: float = BOOT_LIMIT, listener: Callable[[str], None] | None = None) -> None:
        """Start QEMU and wait for the agent. On failure nothing is left running; the error quotes the console.

        With a ``listener``, which gets every line of the console, the limit is for the time without console output.
        """
        if self.state is not State.OFF:
            raise GuestError(f"a guest that is {self.state} cannot be booted")
        self.state = State.BOOTING
        try:
            with step(f"boot {self._name} on {self.machine.cpu.name}"), self._explained("booting"):
                with step("start QEMU"):
                    self._start()
                deadline = time.monotonic() + time_limit
                draining = drained(self._console_end) if self._console_end is not None else contextlib.nullcontext()
                with step("wait for the agent"), draining:
                    self._wait_for_agent(time_limit, listener)
                with step(f"open the {self.machine.channel} channel"):
                    self._open_channel(deadline)
        except BaseException:
            self.kill()
            raise
        self.state = State.READY

    def run(
        self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT, listener: Listener | None = None
    ) -> CommandResult:
        """Run a program in the guest to its end, whatever its status. A ``listener`` gets its output as it comes."""
        with step("run", *argv) as running:
            result = self._run(argv, time_limit, listener)
            running.note(f"status {result.status}")
        return result

    def succeed(self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT) -> CommandResult:
        """Run a program that must end with status 0. Raises CommandFailed with what it printed."""
        with step("succeed", *argv):
            result = self._run(argv, time_limit)
            if result.status != 0:
                raise _failure(result, f"ended with status {result.status} in the guest")
        return result

    def fail(self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT) -> CommandResult:
        """Run a program that must end with another status than 0. Raises CommandFailed with what it printed."""
        with step("fail", *argv) as failing:
            result = self._run(argv, time_limit)
            if result.status == 0:
                raise _failure(result, "ended with status 0 in the guest, and had to fail")
            failing.note(f"status {result.status}")
        return result

    def wait_until_succeeds(self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT) -> CommandResult:
        """Run a program every 0.1 guest seconds until it ends with status 0; its last result.

        Raises CommandFailed with what it printed last when it still fails after ``time_limit`` host seconds,
        CommandTimeout when it did not end by then.
        """
        deadline = time.monotonic() + time_limit
        with step("wait until succeeds", *argv) as waiting:
            attempts = 1
            result = self._run(argv, time_limit)
            while result.status != 0:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise _failure(
                        result, f"still ended with status {result.status} in the guest after {time_limit:g} s"
                    )
                self._run(_POLL_PAUSE, COMMAND_LIMIT)
                result = self._run(argv, max(left, _LAST_ATTEMPT_LIMIT))
                attempts += 1
            waiting.note(f"attempts: {attempts}")
        return result

    def put(self, content: bytes | Path, target: str, *, mode: int = 0o644, time_limit: float = COMMAND_LIMIT) -> None:
        """Write a file in the guest, from bytes or from a file of the host."""
        with step("put", target), self._explained(f"writing {target}"):
            self._commands.put(content, target, mode=mode, time_limit=time_limit)

    def get(self, source: str, *, time_limit: float = COMMAND_LIMIT) -> bytes:
        """Read a file of the guest."""
        with step("get", source), self._explained(f"reading {source}"):
            return self._commands.get(source, time_limit=time_limit)

    def ktap(self, *suites: str) -> TestRun:
        """The results of KUnit's suites, of all that have run by default. Raises UnsupportedError, UsageError."""
        return kunit_results(self, suites)

    def read_memory(self, address: int, size: int) -> bytes:
        """Bytes of the guest's kernel memory, read by QEMU: the guest cannot forge them."""
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
        unexpected = (r for r in self.console.reports(mark) if not r.is_expected(self.expected_reports))
        reports = list(itertools.islice(unexpected, _REPORTS_MAX))
        if reports:
            raise trouble_of(reports)

    def drain_console(self) -> None:
        """Wait until what the kernel has logged so far is on the console.

        A kernel prints its log in order, on whatever CPU: once a line of ours is there, so is all before it. Returns as
        well where that line does not come: the guest is dead, or its console prints no alerts. A program that prints
        without end does not keep it waiting.
        """
        if self._agent is None or self.state is not State.READY:
            return
        line = f"lab: end of log {secrets.token_hex(8)}"
        mark = self.console.length()
        end = mark + _DRAINING_BYTES
        with step("drain the console"), contextlib.suppress(GuestError):
            # An alert: the guest's log level may be low.
            self._agent.put(f"<1>{line}\n".encode(), "/dev/kmsg", mode=0o644, time_limit=_DRAINING_LIMIT)
            deadline = time.monotonic() + _DRAINING_LIMIT
            while time.monotonic() < deadline and mark < end:
                lines, after = self.console.whole_lines(mark)
                if any(line in printed for printed in lines):
                    return
                if after > mark:
                    mark, deadline = after, time.monotonic() + _DRAINING_LIMIT
                else:
                    time.sleep(_DRAINING_PAUSE)

    def pause(self) -> None:
        """Stop the guest's CPUs and clock. On the exact clock an idle guest keeps the host as busy as a working one."""
        self._control(State.READY, "stop", State.PAUSED)

    def resume(self) -> None:
        """Let a paused guest go on; for the guest no time has passed."""
        self._control(State.PAUSED, "cont", State.READY)

    def power_off(self) -> None:
        """End the guest in order: the agent resets the machine when the channel closes, and QEMU ends with it."""
        with step(f"power off {self._name}"):
            self._hang_up()
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(DYING_LIMIT)
            self.kill()

    def kill(self) -> None:
        """End the guest at once. Does nothing to one that is off or gone."""
        if self._process is not None:
            with step(f"kill {self._name}"):
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
        self._aborted = True  # also a guest whose QEMU is not started yet
        process = self._process
        if process is not None and process.poll() is None:
            with step(f"abort {self._name}"), contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _hang_up(self) -> None:
        for channel in (self._channel, self._agent):
            if channel is not None:
                channel.close()
        if self._console_end is not None:
            self._console_end.close()

    def _wait_for_agent(self, time_limit: float, listener: Callable[[str], None] | None) -> None:
        agent = self._agent
        assert agent is not None
        if listener is None:
            agent.wait_for_agent(time.monotonic() + time_limit)
            return
        start = time.monotonic()
        deadline, passed_on, printed, waiting = start + time_limit, 0, 0, True
        while waiting:
            try:
                agent.wait_for_agent(time.monotonic() + _LISTENING_INTERVAL)
                waiting = False
            except GuestHang:
                pass
            finally:  # also the last lines of a guest that dies
                lines, passed_on = self.console.whole_lines(passed_on)
                for line in lines:
                    listener(line)
            length, now = self.console.length(), time.monotonic()
            if length > printed:
                printed, deadline = length, now + time_limit
            if waiting and now >= deadline:
                raise GuestHang(f"no console output for {time_limit:g} s")
            if waiting and now >= start + LONGEST_WORK:
                raise GuestHang(f"it is still at work after {LONGEST_WORK / 3600:g} hours, the most that are allowed")

    def _run(self, argv: Sequence[str], time_limit: float, listener: Listener | None = None) -> CommandResult:
        with self._explained(f"running {argv[0] if argv else 'nothing'}"):
            return self._commands.run(argv, time_limit=time_limit, listener=listener)

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
        # It answers when the machine is made. QEMU has opened all files by then: removed here, none is left behind.
        if self._files is not None:
            self._files.remove()

    def _open_channel(self, deadline: float) -> None:
        """Open the channel that commands go through: the agent's, sshd's, or the console's."""
        assert self._agent is not None
        self._channel = self._agent
        for number, disk in enumerate(self.machine.data):
            argv = ["mount-data", data_disk_serial(number), f"/data/{disk.name}"]
            result = self._agent.run(argv, time_limit=COMMAND_LIMIT)
            if result.status != 0:
                raise GuestError(
                    f"the data disk {disk.name} cannot be mounted in the guest", detail=_last_lines(result.stderr)
                )
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
        """Raise what really happened to the guest instead of a broken channel or a missing answer."""
        try:
            yield
        except GuestError as error:
            raise cause_of(error, doing, self.console, self._messages, self._process) from None


def _failure(result: CommandResult, how: str) -> CommandFailed:
    return CommandFailed(
        f"`{' '.join(result.argv)}` {how}", detail=[*_last_lines(result.stdout), *_last_lines(result.stderr)]
    )


def _last_lines(printed: bytes) -> list[str]:
    return plain_lines(printed[-_QUOTED_BYTES:])[-_QUOTED_LINES:]
