# SPDX-License-Identifier: GPL-2.0-only
"""The life of a guest: from off to ready to gone.

    off ── boot() ─────> starting ──> ready ── power_off(), kill(), or its own death ──> gone
        ├─ restore() ──┤              │  ^  └─ save(), keep() ─────────────────────────┘
        └─ reopen() ───┘      pause() v  │ resume()
                                     paused

Ways through files are in ``saving``; what a machine is made of is in ``machine``, the files of one guest in
``guest_files``, QEMU's process in ``running_qemu``, what the console means in ``console``, why a guest failed in
``diagnosis``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestConnectionLost, GuestError, GuestExit, GuestHang, GuestPanic
from orchestrator.guest.boot_stub import BootStub
from orchestrator.guest.boot_watch import Listener, OwnStop, wait_for_boot, watch_boot
from orchestrator.guest.channel import Channel
from orchestrator.guest.console import Console
from orchestrator.guest.console_bound import CONSOLE_MAX
from orchestrator.guest.diagnosis import cause_of
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest_files import GuestFiles, SshKeys, make_guest_files
from orchestrator.guest.hang import interrupt
from orchestrator.guest.machine import Machine, counts_file
from orchestrator.guest.memory import SharedMemory
from orchestrator.guest.memory_kills import explain_kill, memory_kills
from orchestrator.guest.opening import mount_data, open_channel
from orchestrator.guest.panic_watch import PanicWatch
from orchestrator.guest.running_qemu import HostFiles, RunningQemu
from orchestrator.guest.slots import Slots, take_slots
from orchestrator.steps import step

BOOT_LIMIT = 180.0
"""Seconds from QEMU's start to the agent's first frame; a Debian kernel takes seven on an idle core."""

FAILURES = (GuestExit, GuestPanic, GuestHang, GuestConnectionLost)
"""What is raised once a guest has ended by itself, or does not answer."""


class State(StrEnum):
    """Where in its life a guest is."""

    OFF = "off"
    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    GONE = "gone"


class GuestLife:
    """A guest's QEMU, files and channel, and where in its life it is."""

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
        self.console_max = CONSOLE_MAX
        self._directory, self._name = directory, name
        self._terminal, self._memory = terminal, memory
        self._qemu = RunningQemu(directory / f"{name}.qemu")
        self._files: GuestFiles | None = None
        self._overlay: int | None = None  # the open file, for who saves or keeps the guest
        self._channel: Channel | None = None
        self._slots: Slots | None = None
        self._memory_kills: int | None = None  # of any process, before QEMU's start
        self._panic_watch: PanicWatch | None = None

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

    @property
    def counts_file(self) -> Path:
        """What the counting plugin of its machine writes."""
        return counts_file(self.console.path)

    def take_slots(self) -> None:
        """Wait until the host has room for it; it does so by itself when it starts. Raises GuestError when aborted."""
        if self._slots is None:
            with step("take slots of the host"):
                self._slots = take_slots(self.machine.memory_mib, self.say, self._qemu.check_aborted)

    def boot(
        self,
        time_limit: float = BOOT_LIMIT,
        listener: Listener | None = None,
        before_work: Callable[[], None] = lambda: None,
    ) -> None:
        """Start QEMU and wait for the agent. On failure nothing is left running; the error quotes the console.

        Raises GuestError, and UnsupportedError where the kernel refuses the CPU.

        With a ``listener``, which gets every line of the console, the limit is for the time without console output.
        ``before_work`` is called while a guest that works alone has stopped itself before its work.
        """
        with self._starting("boot", "booting", "booted"):
            with step("start QEMU"):
                memory = None if self._memory is None else self._memory.file
                passed = () if self._memory is None else (self._memory.descriptor,)
                if self.machine.disk_drivers is not None:
                    self._files = make_guest_files(self.machine, self._directory, self._name)
                self._start(HostFiles(self.console.path, memory=memory, passed=passed))
            deadline = Deadline(time_limit)
            with step("wait for the agent"), self._qemu.drained_console():
                assert self._qemu.monitor is not None
                stub = BootStub(self._qemu.monitor, self.console, self.machine.cpu.name)
                stop = OwnStop(self._qemu.monitor, before_work, is_expected=self.machine.works_alone)
                if listener is None:
                    wait_for_boot(self._agent, stub, stop, deadline)
                else:
                    watch_boot(self._agent, self.console, stub, stop, time_limit, listener)
            with step(f"open the {self.machine.channel} channel"):
                mount_data(self._agent, self.machine)
                self._channel = open_channel(self._qemu, self.machine, self._keys, deadline)

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
        if self._panic_watch is not None:  # after QEMU's end, which ends what it may be waiting for
            self._panic_watch.stop()
        if self._channel is not None:
            self._channel.close()
        if self._files is not None:
            self._files.remove()
        if self._overlay is not None:
            os.close(self._overlay)
        self._release_slots()
        self._channel = self._files = self._overlay = self._panic_watch = None
        self.state = State.GONE

    def abort(self) -> None:
        """End QEMU from another thread than the guest's own, which finds its connection lost and cleans up."""
        with step(f"abort {self._name}") if self.pid is not None else contextlib.nullcontext():
            self._qemu.abort()

    def _release_slots(self) -> None:
        if self._slots is not None:
            self._slots.release()
        self._slots = None

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._qemu.hang_up()

    def _control(self, before: State, command: str, after: State) -> None:
        if self._qemu.monitor is None or self.state is not before:
            raise GuestError(f"a guest that is {self.state} does not become {after}")
        with self._explained(f"becoming {after}"):
            self._qemu.monitor.command(command)
        self.state = after

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
        self._memory_kills = memory_kills()
        self._qemu.start(self.machine, replace(files, terminal=self._terminal), self.console_max)
        if self._qemu.monitor is not None:
            self._panic_watch = PanicWatch(self._qemu.monitor, self.console)
        # QEMU has opened all files: removed here, none is left behind, whatever ends us.
        if self._files is not None:
            if self._files.overlay is not None:
                self._overlay = os.open(self._files.overlay, os.O_RDONLY | os.O_CLOEXEC)
            self._files.remove()

    def _ask_where_it_hangs(self) -> str:
        if self.machine.channel == "serial":
            # Nobody reads the console any more: with our end open, the port blocks the kernel after some hundred bytes.
            for end in (self._channel, self._qemu.console_end):
                if end is not None:
                    end.close()
        if self._qemu.monitor is not None and self._qemu.process is not None:
            return interrupt(self._qemu.monitor, self._qemu.process, self.console)
        return ""

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Raise what really happened to the guest instead of a broken channel or a missing answer."""
        try:
            yield
        except GuestError as error:
            if isinstance(error, GuestHang):
                error.what += self._ask_where_it_hangs()
            flood = self._qemu.flood
            cause = flood or cause_of(error, doing, self.console, self._qemu.messages, self._qemu.process)
            if isinstance(cause, GuestExit) and cause is not flood:
                explain_kill(cause, self._memory_kills)
            self.has_failed = self.has_failed or isinstance(cause, FAILURES)
            raise cause from None


def _silent(text: str) -> None:
    del text
