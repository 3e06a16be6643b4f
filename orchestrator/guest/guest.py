# SPDX-License-Identifier: GPL-2.0-only
"""A running guest: from off to ready to gone, and the verbs for what happens in between.

    off ── boot() ─────> starting ──> ready ── power_off(), kill(), or its own death ──> gone
        ├─ restore() ──┤              │  ^  └─ save(), keep() ─────────────────────────┘
        └─ reopen() ───┘      pause() v  │ resume()
                                     paused

The whole life is in this file; what a machine is made of is in ``machine``, the files of one guest in ``guest_files``,
QEMU's process in ``running_qemu``, a saved guest in ``saved``, how commands travel in ``channel``, what the console
means in ``console``, why a guest failed in ``diagnosis``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
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
    GuestPanic,
    UsageError,
)
from orchestrator.guest.boot_watch import watch_boot
from orchestrator.guest.channel import OUTPUT_MAX, Channel, CommandResult, Listener
from orchestrator.guest.console import REPORTS_MAX, Console, plain_lines
from orchestrator.guest.diagnosis import cause_of, trouble_of
from orchestrator.guest.end_of_log import wait_for_end_of_log
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest_files import GuestFiles, SshKeys, keep_overlay, make_guest_files, make_restored_files
from orchestrator.guest.interrupts import counted_interrupts
from orchestrator.guest.kernel_tests import kunit_results
from orchestrator.guest.machine import Machine
from orchestrator.guest.memory import SharedMemory
from orchestrator.guest.opening import mount_data, open_channel
from orchestrator.guest.renewal import renew
from orchestrator.guest.running_qemu import HostFiles, RunningQemu
from orchestrator.guest.saved import (
    SavedGuest,
    begin_console,
    keep_files,
    load_devices,
    load_whole,
    save_devices,
    save_whole,
)
from orchestrator.guest.slots import Slots, take_slots
from orchestrator.ktap.results import TestRun
from orchestrator.steps import step

RESTORE_LIMIT = 60.0
"""Host seconds from QEMU's start to the channel of a restored guest, which takes 0.3 on an idle core."""

BOOT_LIMIT = 180.0
"""Seconds from QEMU's start to the agent's first frame; a Debian kernel takes seven on an idle core."""

_FAILURES = (GuestExit, GuestPanic, GuestHang, GuestConnectionLost)
"""What is raised once a guest has ended by itself, or does not answer."""

COMMAND_LIMIT = 60.0
"""Host seconds for a command, a file, or a condition to become true."""

_POLL_PAUSE = ("sleep", "0.1")
"""Runs in the guest between two polls: on the exact clock, guest time stands still while the guest is idle."""

_LAST_ATTEMPT_LIMIT = 1.0
"""Host seconds that the last poll of a condition gets at least."""

_QUOTED_BYTES = 4096
_QUOTED_LINES = 10


class State(StrEnum):
    """Where in its life a guest is."""

    OFF = "off"
    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    GONE = "gone"


class Guest:
    """One guest. Its console log and QEMU's messages go into ``directory``, as ``NAME.console`` and ``NAME.qemu``.

    Used as a context manager it boots on entry, unless it is ready already, and is killed on exit. A guest belongs to
    the thread that starts it. ``expected_reports`` are patterns: what its kernel reports is no trouble where one of
    them is found in the report. ``say`` gets a line when it has to wait for other guests. ``terminal`` is a device's
    name. With ``memory`` of ours it can be saved. ``has_failed`` once a verb has raised that it is gone, or hangs.
    """

    def __init__(
        self,
        machine: Machine,
        directory: Path,
        name: str = "guest",
        *,
        terminal: str | None = None,
        memory: SharedMemory | None = None,
    ) -> None:
        self.machine = machine
        self.console = Console(directory / f"{name}.console")
        self.expected_reports: Sequence[re.Pattern[str]] = ()
        self.state = State.OFF
        self.restored_from: str | None = None
        self.has_failed = False
        self.say: Callable[[str], None] = _silent
        self._directory, self._name = directory, name
        self._terminal, self._memory = terminal, memory
        self._qemu = RunningQemu(directory / f"{name}.qemu")
        self._files: GuestFiles | None = None
        self._overlay: int | None = None  # the open file, of a guest that can be saved
        self._channel: Channel | None = None
        self._slots: Slots | None = None

    def __enter__(self) -> Self:
        if self.state is not State.READY:
            self.boot()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int | None:
        """QEMU's process number while it runs."""
        return self._qemu.pid

    @property
    def is_aborted(self) -> bool:
        """Whether another thread has ended it."""
        return self._qemu.is_aborted

    @property
    def command_line(self) -> tuple[str, ...]:
        """QEMU's command line; empty before the start."""
        return self._qemu.command_line

    def take_slots(self) -> None:
        """Wait until the host has room for it; it does so by itself when it starts. Raises GuestError when aborted."""
        if self._slots is None:
            with step("take slots of the host"):
                self._slots = take_slots(self.machine.memory_mib, self.say, self._qemu.check_aborted)

    def boot(self, time_limit: float = BOOT_LIMIT, listener: Callable[[str], None] | None = None) -> None:
        """Start QEMU and wait for the agent. On failure nothing is left running; the error quotes the console.

        With a ``listener``, which gets every line of the console, the limit is for the time without console output.
        """
        with self._starting("boot", "booting", "booted"):
            with step("start QEMU"):
                memory = None if self._memory is None else self._memory.file
                passed = () if self._memory is None else (self._memory.descriptor,)
                if self.machine.disk_drivers is not None:
                    self._files = make_guest_files(self.machine, self._directory, self._name)
                self._start(HostFiles(self.console.path, memory=memory, passed=passed))
            deadline = time.monotonic() + time_limit
            with step("wait for the agent"), self._qemu.drained_console():
                if listener is None:
                    self._agent.wait_for_agent(deadline)
                else:
                    watch_boot(self._agent, self.console, time_limit, listener)
            with step(f"open the {self.machine.channel} channel"):
                mount_data(self._agent, self.machine)
                self._channel = open_channel(self._qemu, self.machine, self._keys, deadline)

    def restore(self, saved: SavedGuest, time_limit: float = RESTORE_LIMIT) -> None:
        """Go on where a guest of this machine was saved, as another one. On failure nothing is left running.

        The console's log begins with what was printed before. The clock of a guest that is not on the exact clock is
        set, its random pool is another, and one in an image has a name, a machine-id and keys of its own.
        """
        with self._starting("restore", "being restored", "restored"):
            with step("start QEMU"):
                self._files = make_restored_files(self.machine, saved.overlay, self._directory, self._name)
                begin_console(saved, self.console.path)
                self._start(HostFiles(self.console.path, memory=saved.memory))
            assert self._qemu.monitor is not None
            deadline = time.monotonic() + time_limit
            with step("load the devices"):
                load_devices(self._qemu.monitor, saved.state)
            with step("wait for the agent"), self._qemu.drained_console():
                # On the exact clock an idle guest's time runs ahead: it finds the request when it goes on.
                ping = self._agent.send_ping()
                self._qemu.monitor.command("cont")
                self._agent.wait_for_answer(ping, time_limit)
                renew(self._agent, self.machine, self._files.identity)
            with step(f"open the {self.machine.channel} channel"):
                self._channel = open_channel(self._qemu, self.machine, self._keys, deadline)
        self.restored_from = saved.key

    def save(self, saved: SavedGuest) -> None:
        """Write the guest into the folder of a saved one, and end it. Raises GuestError, OSError."""
        with step(f"save {self._name}"), self._explained("being saved"):
            if self._qemu.monitor is None or self._memory is None or self.state is not State.READY:
                raise GuestError(f"a guest that is {self.state} cannot be saved, nor one with memory of QEMU's own")
            self._leave_channel()
            save_devices(self._qemu.monitor, saved.state)
            overlay = None if self._overlay is None else Path(f"/proc/self/fd/{self._overlay}")
            keep_files(saved, self._memory, overlay, self.console.path)
        self.kill()

    def keep(self, saved: SavedGuest) -> None:
        """Write the whole guest, its memory with its devices, into a folder, and end it. Raises GuestError, OSError.

        Any guest may be kept, in whatever state its kernel is; but none with a session on its console.
        """
        with step(f"keep {self._name}"), self._explained("being kept"):
            if self._qemu.monitor is None or self.pid is None or self.state not in (State.READY, State.PAUSED):
                raise GuestError("a guest that has ended cannot be kept")
            if self.machine.channel == "serial":
                raise GuestError("a guest with a session on its console cannot be kept")
            if self.state is State.READY:
                with contextlib.suppress(GuestError):  # the agent may be what has failed
                    self._leave_channel()
            save_whole(self._qemu.monitor, saved.state)
            if self.machine.root is not None:
                assert self._files is not None
                assert self._files.overlay is not None
                keep_overlay(self.machine.root, self._files.overlay, self.pid, saved.overlay)
        self.kill()

    def reopen(self, saved: SavedGuest, time_limit: float = RESTORE_LIMIT) -> None:
        """Go on as the guest that was kept: nothing of it is another. Its commands go to the agent.

        What it has written to ``saved.overlay`` is removed. On failure nothing is left running.
        """
        with self._starting("reopen", "being reopened", "reopened"):
            with step("start QEMU"):
                self._files = GuestFiles(overlay=None if self.machine.root is None else saved.overlay)
                self._start(HostFiles(self.console.path, is_kept=True))
            assert self._qemu.monitor is not None
            with step("load the memory and the devices"):
                load_whole(self._qemu.monitor, saved.state)
            with step("wait for the agent"):
                ping = self._agent.send_ping()
                self._qemu.monitor.command("cont")
                self._agent.wait_for_answer(ping, time_limit)
            self._channel = self._agent

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

    def get(self, source: str, *, time_limit: float = COMMAND_LIMIT, largest: int = OUTPUT_MAX) -> bytes:
        """Read a file of the guest. Raises GuestError for one of more than ``largest`` bytes, or without an end."""
        with step("get", source), self._explained(f"reading {source}"):
            return self._commands.get(source, time_limit=time_limit, largest=largest)

    def ktap(self, *suites: str) -> TestRun:
        """The results of KUnit's suites, of all that have run by default. Raises UnsupportedError, UsageError."""
        return kunit_results(self, suites)

    def read_memory(self, address: int, size: int) -> bytes:
        """Bytes of the guest's kernel memory, read by QEMU: the guest cannot forge them."""
        if self._qemu.monitor is None:
            raise GuestError(f"a guest that is {self.state} has no memory to read")
        with self._explained("reading memory"):
            return self._qemu.monitor.read_memory(address, size)

    @contextlib.contextmanager
    def counted_interrupts(self) -> Iterator[Counter[int]]:
        """Count the traps and interrupts that the guest's kernel takes meanwhile, by vector, from outside."""
        if self._qemu.monitor is None:
            raise GuestError(f"a guest that is {self.state} takes no interrupts")
        with counted_interrupts(self._qemu.monitor) as counts:
            yield counts

    def check_console(self, mark: int = 0) -> None:
        """Raise GuestOops when the kernel has reported trouble since ``mark`` (a ``console.length()``)."""
        unexpected = (r for r in self.console.reports(mark) if not r.is_expected(self.expected_reports))
        reports = list(itertools.islice(unexpected, REPORTS_MAX))
        if reports:
            raise trouble_of(reports)

    def check_alive(self, doing: str) -> None:
        """Raise GuestExit, or GuestPanic, where it has ended by itself, and no verb has raised that yet."""
        if self.state in (State.READY, State.PAUSED) and self.pid is None and not self.has_failed:
            with self._explained(doing):
                raise GuestConnectionLost("it has ended by itself")

    def drain_console(self) -> None:
        """Wait until what the kernel has logged so far is on the console.

        A kernel prints its log in order, on whatever CPU: once a line of ours is there, so is all before it. Returns as
        well where that line does not come: the guest is dead, or its console prints no alerts. A program that prints
        without end does not keep it waiting.
        """
        if self._qemu.agent is None or self.state is not State.READY:
            return
        with step("drain the console"), contextlib.suppress(GuestError):
            wait_for_end_of_log(self._qemu.agent, self.console)

    def pause(self) -> None:
        """Stop the guest's CPUs and clock. On the exact clock an idle guest keeps the host as busy as a working one."""
        self._control(State.READY, "stop", State.PAUSED)
        self._release_slots()

    def resume(self) -> None:
        """Let a paused guest go on; for the guest no time has passed."""
        if self.state is State.PAUSED:
            self.take_slots()
        self._control(State.PAUSED, "cont", State.READY)

    def power_off(self) -> None:
        """End the guest in order: the agent resets the machine when the channel closes, and QEMU ends with it."""
        with step(f"power off {self._name}"):
            self._hang_up()
            self._qemu.wait()
            self.kill()

    def kill(self) -> None:
        """End the guest at once. Does nothing to one that is off or gone."""
        with step(f"kill {self._name}") if self._qemu.process is not None else contextlib.nullcontext():
            self._qemu.kill()
        if self._channel is not None:
            self._channel.close()
        if self._files is not None:
            self._files.remove()
        if self._overlay is not None:
            os.close(self._overlay)
        self._release_slots()
        self._channel = self._files = self._overlay = None
        self.state = State.GONE

    def abort(self) -> None:
        """End QEMU from another thread than the guest's own, which finds its connection lost and cleans up."""
        with step(f"abort {self._name}") if self.pid is not None else contextlib.nullcontext():
            self._qemu.abort()

    def _release_slots(self) -> None:
        if self._slots is not None:
            self._slots.release()
        self._slots = None

    def _leave_channel(self) -> None:
        """Close an SSH connection: nothing of it is to be in the guest's state."""
        if self._channel is not self._agent:
            assert self._channel is not None
            self._channel.close()
            # sshd notices, and the connection is gone from QEMU's network.
            self._agent.run(_POLL_PAUSE, time_limit=COMMAND_LIMIT)

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._qemu.hang_up()

    def _run(self, argv: Sequence[str], time_limit: float, listener: Listener | None = None) -> CommandResult:
        if isinstance(argv, str):
            raise UsageError(f"found {argv!r}; a command is a list of words", hint=f"{argv.split()!r}")
        with self._explained(f"running {argv[0] if argv else 'nothing'}"):
            return self._commands.run(argv, time_limit=time_limit, listener=listener)

    def _control(self, before: State, command: str, after: State) -> None:
        if self._qemu.monitor is None or self.state is not before:
            raise GuestError(f"a guest that is {self.state} does not become {after}")
        with self._explained(f"becoming {after}"):
            self._qemu.monitor.command(command)
        self.state = after

    @property
    def _commands(self) -> Channel:
        if self._channel is None or self.state is State.PAUSED:
            raise GuestError(f"a guest that is {self.state} takes no commands")
        return self._channel

    @property
    def _agent(self) -> FramedChannel:
        assert self._qemu.agent is not None
        return self._qemu.agent

    @property
    def _keys(self) -> SshKeys | None:
        return self._files.keys if self._files is not None else None

    @contextlib.contextmanager
    def _starting(self, verb: str, doing: str, done: str) -> Iterator[None]:
        """From off to ready; on failure nothing is left running."""
        if self.state is not State.OFF:
            raise GuestError(f"a guest that is {self.state} cannot be {done}")
        self.state = State.STARTING
        try:
            with step(f"{verb} {self._name} on {self.machine.cpu.name}"), self._explained(doing):
                self.take_slots()
                yield
        except BaseException:
            self.kill()
            raise
        self.state = State.READY

    def _start(self, files: HostFiles) -> None:
        if self._files is not None:
            files = replace(files, initramfs=self._files.initramfs, overlay=self._files.overlay)
        self._qemu.start(self.machine, replace(files, terminal=self._terminal))
        # QEMU has opened all files: removed here, none is left behind, whatever ends us.
        if self._files is not None:
            if self._memory is not None and self._files.overlay is not None:
                self._overlay = os.open(self._files.overlay, os.O_RDONLY | os.O_CLOEXEC)
            self._files.remove()

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Raise what really happened to the guest instead of a broken channel or a missing answer."""
        try:
            yield
        except GuestError as error:
            cause = cause_of(error, doing, self.console, self._qemu.messages, self._qemu.process)
            self.has_failed = self.has_failed or isinstance(cause, _FAILURES)
            raise cause from None


def _silent(text: str) -> None:
    del text


def _failure(result: CommandResult, how: str) -> CommandFailed:
    return CommandFailed(
        f"`{' '.join(result.argv)}` {how}", detail=[*_last_lines(result.stdout), *_last_lines(result.stderr)]
    )


def _last_lines(printed: bytes) -> list[str]:
    return plain_lines(printed[-_QUOTED_BYTES:])[-_QUOTED_LINES:]
