# SPDX-License-Identifier: GPL-2.0-only
"""A guest: its lifecycle, and the verbs for working in it.

::

    off ── boot() ──────────> starting ──> ready ── power_off(), kill(), or its own death ──> gone
        └─ continue_from() ──┘             │  ^  └─ written_out() ───────────────────────────┘
                                   pause() v  │ resume()
                                          paused                                   renew(): off again
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self

from orchestrator.deadline import Deadline
from orchestrator.errors import (
    CommandFailed,
    GuestConnectionLost,
    GuestError,
    GuestExit,
    GuestHang,
    GuestOops,
    GuestPanic,
    UsageError,
)
from orchestrator.guest.boot_stub import BootStub
from orchestrator.guest.boot_wait import BootListener, StopBeforeWork, wait_for_boot
from orchestrator.guest.channel import COMMAND_LIMIT, OUTPUT_MAX, Channel, CommandResult, Listener, command_name
from orchestrator.guest.console import QUOTED_LINES, REPORTS_MAX, Console, plain_lines
from orchestrator.guest.debugger import Stub
from orchestrator.guest.diagnosis import DYING_LIMIT, cause_of, trouble_of
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest_files import GuestFiles, SharedMemory, make_guest_files
from orchestrator.guest.interruption import interrupt
from orchestrator.guest.kernel_reports import KernelReport, Trouble
from orchestrator.guest.machine import Machine
from orchestrator.guest.memory_kills import explain_kill, memory_kills
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.new_identity import reidentify
from orchestrator.guest.panic import answers_interruption
from orchestrator.guest.panic_watch import CONSOLE_MAX
from orchestrator.guest.qemu import RunningQemu, mount_data, open_channel
from orchestrator.guest.qemu_command import MemoryFile, Wiring, counts_file
from orchestrator.guest.slots import Slots, take_slots
from orchestrator.guest.taint import taint_mask, troubles
from orchestrator.guest.trap_counter import PrivilegeRing, counted_interrupts
from orchestrator.guest.vmcore import LACKS_NOTE, write_vmcore
from orchestrator.guest.written_state import GuestParts, WrittenState
from orchestrator.process import exit_status
from orchestrator.steps import step

if TYPE_CHECKING:
    from orchestrator.ktap.results import TestRun

BOOT_LIMIT = 180.0
"""Seconds from QEMU's start to the agent's first frame; a Debian kernel takes seven on an idle core."""

FAILURES = (GuestExit, GuestPanic, GuestHang, GuestConnectionLost)
"""Raised once a guest has ended by itself, or does not answer."""


END_OF_LOG = "lab: end of log"
"""Part of the line that ``drain_console`` writes and waits for."""

_LOG_LIMIT = 10.0
"""Host seconds for the agent to write that line, and of console silence before giving up on it."""

_LOG_BYTES = 2 << 20
"""Console bytes to search for that line; a kernel's log buffer has 128 or 256 KiB (CONFIG_LOG_BUF_SHIFT)."""

_PAUSE = ("sleep", "0.1")
"""Runs in the guest between polls: on the exact clock, guest time stands still while the guest is idle."""

_LAST_ATTEMPT_LIMIT = 1.0
"""Minimum host seconds for the last poll of a condition."""

_ANSWER_LIMIT = 10.0
"""Host seconds for a kernel that seems to have panicked to answer; QEMU's end is noticed earlier."""

_QUOTED_BYTES = 4096

_WAITS_FOR_THE_HOST = re.compile(r"INFO: task .{1,60} blocked (?:in I/O wait )?for more than")
"""Ignored for a guest on the exact clock with a disk: while the host reads the disk such a guest is idle, and its clock
jumps from timer to timer. Minutes of it may pass in a second of a busy host."""


class State(StrEnum):
    """A state in the lifecycle."""

    OFF = "off"
    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    GONE = "gone"


class Guest:
    """One guest. Its console log and QEMU's messages go into ``directory``, as ``NAME.console`` and ``NAME.qemu``.

    As a context manager it boots on entry, unless ready already, and is killed on exit. A guest belongs to the thread
    that starts it. Kernel reports that match a pattern in ``expected_reports`` are not trouble. ``say`` gets a line if
    it has to wait for other guests. ``terminal`` is a device's name. A guest with shared ``memory`` can be saved. It is
    ended if either log exceeds ``console_max`` bytes. If it panics, hangs or resets itself, it leaves a vmcore in
    ``core_file``, which has to be set before the start. ``before_command`` gets each program that it is about to run.
    ``has_failed`` is set once a verb has raised that it is gone or hangs.
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
        self.expected_reports: Sequence[re.Pattern[str]] = ()
        self.say: Callable[[str], None] = lambda text: None
        self.console_max = CONSOLE_MAX
        self.core_file: Path | None = None
        self._writing_core = threading.Lock()
        self.before_command: Callable[[Sequence[str]], None] = lambda argv: None
        self.directory = directory
        self._terminal, self.memory = terminal, memory
        self._begin_life(name)

    def _begin_life(self, name: str) -> None:
        self.state = State.OFF
        self.console = Console(self.directory / f"{name}.console")
        self.restored_from: str | None = None
        self.saved_symbols: bytes | None = None  # of a restored guest's kernel, without modules loaded since
        self.known_slots: frozenset[tuple[int, str]] = frozenset()  # addresses and bytes, in kprobes' slots
        self.has_failed = False
        self.name = name
        self._qemu = RunningQemu(self.directory / f"{name}.qemu")
        self._files: GuestFiles | None = None
        self._overlay: int | None = None  # open, for writing the guest out
        self._channel: Channel | None = None
        self._slots: Slots | None = None
        self._stub: Stub | None = None
        self._memory_kills: int | None = None  # of any process, counted before QEMU's start

    def __enter__(self) -> Self:
        if self.state is not State.READY:
            self.boot()
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()

    @property
    def pid(self) -> int | None:
        """QEMU's process ID while it runs."""
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
        return counts_file(self.console.path)

    def renew(self, name: str | None = None) -> None:
        """Turn a guest that is gone into one that is off, with logs of another ``name``, or anew with the same."""
        if self.state is not State.GONE:
            raise GuestError(f"a guest that is {self.state} cannot become {State.OFF}")
        self._begin_life(name or self.name)

    def take_slots(self) -> None:
        """Wait until the host has room for it; starting it does so too. Raises GuestError if aborted."""
        if self._slots is None:
            with step("take slots of the host"):
                self._slots = take_slots(self.machine.memory_mib, self.say, self._qemu.check_aborted)

    def boot(
        self,
        time_limit: float = BOOT_LIMIT,
        listener: BootListener | None = None,
        before_work: Callable[[], None] = lambda: None,
    ) -> None:
        """Start QEMU and wait for the agent. On failure nothing is left running; the error quotes the console.

        A ``listener`` receives every console line; with it, the limit is for the time without console output.
        ``before_work`` is called while a guest with unattended work has stopped itself before its work. Raises
        GuestError, and UnsupportedError if the kernel refuses the CPU.
        """
        with self._starting("boot", "booting", "booted"):
            with step("start QEMU"):
                if self.machine.disk_drivers is not None:
                    self._files = make_guest_files(self.machine, self.directory, self.name)
                self._start(None if self.memory is None else self.memory.file)
            deadline = Deadline(time_limit)
            with step("wait for the agent"), self._qemu.drained_console():
                stub = BootStub(self._monitor, self.console, self.machine.cpu.name)
                stop = StopBeforeWork(self._monitor, before_work, is_expected=self.machine.works_alone)
                wait_for_boot(self._agent, self.console, stub, stop, time_limit, listener)
            with step(f"open the {self.machine.channel} channel"):
                mount_data(self._agent, self.machine)
                self._channel = open_channel(self._qemu, self.machine, self._files, deadline)

    def awake(self) -> contextlib.AbstractContextManager[None]:
        """Let the guest go on meanwhile, though nothing is asked of it.

        One on the exact clock, on the agent's channel and without a network, rests 20 ms after the last verb: for it no
        time passes until the next one.
        """
        return self._qemu.awake()

    def pause(self) -> None:
        """Stop the guest's CPUs and clock. On the exact clock an idle guest keeps the host as busy as a working one."""
        self._control(State.READY, "stop", State.PAUSED)
        self._release_slots()

    def resume(self) -> None:
        """Continue a paused guest; for the guest no time has passed."""
        if self.state is State.PAUSED:
            self.take_slots()
        self._control(State.PAUSED, "cont", State.READY)

    def power_off(self) -> None:
        """Shut the guest down: the agent resets the machine when its channel closes, which ends QEMU."""
        with step(f"power off {self.name}"):
            self.core_file = None
            if self._channel is not None:
                self._channel.close()
            self._qemu.hang_up()
            if self._qemu.process is not None:
                exit_status(self._qemu.process, DYING_LIMIT)
            self.kill()

    def kill(self) -> None:
        """End the guest immediately. Does nothing if it is off or gone."""
        with step(f"kill {self.name}") if self._qemu.process is not None else contextlib.nullcontext():
            self._qemu.kill()
        for end in (self._channel, self._stub):
            if end is not None:
                end.close()
        if self._files is not None:
            self._files.remove()
        if self._overlay is not None:
            os.close(self._overlay)
        self._release_slots()
        self._channel = self._stub = self._files = self._overlay = None
        self.state = State.GONE

    def abort(self) -> None:
        """End QEMU from another thread; the guest's own thread finds the connection lost and cleans up."""
        with step(f"abort {self.name}") if self.pid is not None else contextlib.nullcontext():
            self._qemu.abort()

    def _release_slots(self) -> None:
        if self._slots is not None:
            self._slots.release()
        self._slots = None

    def _control(self, before: State, command: str, after: State) -> None:
        if self._qemu.monitor is None or self.state is not before:
            raise GuestError(f"a guest that is {self.state} cannot become {after}")
        with self._explained(f"becoming {after}"):
            self._qemu.never_rest()
            self._qemu.monitor.command(command)
        self.state = after
        if after is State.READY:
            self._rest_when_idle()

    @property
    def _agent(self) -> FramedChannel:
        assert self._qemu.agent is not None
        return self._qemu.agent

    @property
    def _monitor(self) -> Monitor:
        assert self._qemu.monitor is not None
        return self._qemu.monitor

    @contextlib.contextmanager
    def _starting(self, verb: str, doing: str, done: str) -> Iterator[None]:
        """From off to ready; on failure nothing is left running."""
        if self.state is not State.OFF:
            raise GuestError(f"a guest that is {self.state} cannot be {done}")
        self.state = State.STARTING
        try:
            with step(f"{verb} {self.name} on {self.machine.cpu.name}"), self._explained(doing):
                self.take_slots()
                yield
            self.state = State.READY
            self._rest_when_idle()
        except BaseException:
            self.kill()
            raise

    def _rest_when_idle(self) -> None:
        """Others than the lab may ask something of a guest with a console, SSH or a network."""
        machine = self.machine
        if machine.timing == "instructions" and machine.channel == "framed" and not (machine.lan or self._stub):
            self._qemu.rest_when_idle()

    def _start(self, memory: MemoryFile | None, *, is_kept: bool = False) -> None:
        files = self._files or GuestFiles()
        self._memory_kills = memory_kills()
        self._qemu.start(
            self.machine,
            Wiring(
                console=self.console.path.absolute(),
                terminal=self._terminal,
                initramfs=None if files.initramfs is None else files.initramfs.absolute(),
                overlay=None if files.overlay is None else files.overlay.absolute(),
                memory=memory,
                is_kept=is_kept,
            ),
            passed=[
                *(() if self.memory is None else (self.memory.descriptor,)),
                *(() if self.machine.lan is None else (self.machine.lan.descriptor,)),
            ],
            console_max=self.console_max,
        )
        if self.core_file is not None:
            self._qemu.wait_before_end(self.keep_core)
        # QEMU has opened all files; removed now, they cannot be left behind even if this process is killed.
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
        """Replace a broken channel or a missing answer by its cause in the guest."""
        try:
            yield
        except GuestError as error:
            if isinstance(error, GuestHang):
                with self._qemu.awake():
                    self.keep_core()  # before the NMI, which makes the kernel panic
                    error.what += self._ask_where_it_hangs()
            flood = self._qemu.flood
            cause = flood or cause_of(error, doing, self.console, self._qemu.messages, self._qemu.process)
            if isinstance(cause, GuestExit) and cause is not flood:
                explain_kill(cause, self._memory_kills)
            self.has_failed = self.has_failed or isinstance(cause, FAILURES)
            raise cause from None

    def continue_from(self, state: WrittenState, time_limit: float) -> None:
        """Start QEMU with a written state in place of a boot, and wait for the agent, ``time_limit`` host seconds each.

        On failure nothing is left running. Raises GuestError, HostError.
        """
        with self._starting(state.verb, f"being {state.done}", state.done):
            with step("start QEMU"):
                self._files = state.make_files(self.machine, self.console.path)
                self._start(state.memory, is_kept=state.is_kept)
            deadline = Deadline(time_limit)
            with step("load the state"):
                state.load(self._monitor)
            with step("wait for the agent"), self._qemu.drained_console():
                # On the exact clock an idle guest's time runs ahead: send the request before the guest continues.
                ping = self._agent.send_ping()
                self._monitor.command("cont")
                self._agent.wait_for_answer(ping, time_limit)
                reidentify(self._agent, self.machine, self._files.identity)
            with step(f"open the {self.machine.channel} channel"):
                self._channel = self._agent
                if not state.is_kept:
                    self._channel = open_channel(self._qemu, self.machine, self._files, deadline)

    @contextlib.contextmanager
    def written_out(self, verb: str, done: str) -> Iterator[GuestParts]:
        """What the guest consists of, for the block to write; the guest rests no more, and ends after the block.

        Raises GuestError with the cause in the guest for what fails in the block.
        """
        with step(f"{verb} {self.name}"), self._explained(f"being {done}"):
            if self._qemu.monitor is None:
                raise GuestError(f"a guest that is {self.state} cannot be {done}")
            self._qemu.never_rest()
            # The overlay is an open file without a name.
            written = None if self._overlay is None else Path(f"/proc/self/fd/{self._overlay}")
            yield GuestParts(self._monitor, written, None if self._files is None else self._files.base)
        self.kill()

    def leave_channel(self) -> None:
        """Close an SSH connection, to leave no trace of it in the guest's state. Raises GuestError."""
        if self._channel is not self._agent:
            assert self._channel is not None
            self._channel.close()
            # Lets sshd notice, and the connection disappear from QEMU's network.
            self._agent.run(_PAUSE, time_limit=COMMAND_LIMIT)

    def run(
        self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT, listener: Listener | None = None
    ) -> CommandResult:
        """Run a program in the guest and wait for it, whatever its status.

        A ``listener`` receives each stream's bytes as they come, and the result has none. Status 127: no such program;
        128 + N: killed by signal N. Raises CommandTimeout if it was killed after ``time_limit``, GuestError if it
        printed more than 256 MiB.
        """
        with step("run", *argv) as running:
            result = self._run(argv, time_limit, listener)
            running.note(f"status {result.status}")
        return result

    def succeed(self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT) -> CommandResult:
        """Run a program that must exit with status 0. Raises CommandFailed with its output."""
        with step("succeed", *argv):
            result = self._run(argv, time_limit)
            if result.status != 0:
                raise _failure(result, f"ended with status {result.status} in the guest")
        return result

    def fail(self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT) -> CommandResult:
        """Run a program that must exit with a nonzero status. Raises CommandFailed with its output."""
        with step("fail", *argv) as failing:
            result = self._run(argv, time_limit)
            if result.status == 0:
                raise _failure(result, "ended with status 0 in the guest, and had to fail")
            failing.note(f"status {result.status}")
        return result

    def wait_until_succeeds(self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT) -> CommandResult:
        """Run a program every 0.1 guest seconds until it exits with status 0; return its last result.

        Raises CommandFailed with the last output if it still fails after ``time_limit`` host seconds, CommandTimeout if
        it is still running then.
        """
        deadline = Deadline(time_limit)
        with step("wait until succeeds", *argv) as waiting:
            attempts = 1
            result = self._run(argv, time_limit)
            while result.status != 0:
                left = deadline.left()
                if left <= 0:
                    raise _failure(
                        result, f"still ended with status {result.status} in the guest after {time_limit:g} s"
                    )
                self._run(_PAUSE, COMMAND_LIMIT)
                result = self._run(argv, max(left, _LAST_ATTEMPT_LIMIT))
                attempts += 1
            waiting.note(f"attempts: {attempts}")
        return result

    def put(self, content: bytes | Path, target: str, *, mode: int = 0o644, time_limit: float = COMMAND_LIMIT) -> None:
        """Write a file in the guest, from bytes or from a file of the host.

        ``target`` is an absolute path, replaced if it exists. ``mode`` is its permissions. Raises GuestError if the
        guest refuses it, OSError if the host's file cannot be read.
        """
        with step("put", target), self._explained(f"writing {target}"):
            self._commands.put(content, target, mode=mode, time_limit=time_limit)

    def get(self, source: str, *, time_limit: float = COMMAND_LIMIT, largest: int = OUTPUT_MAX) -> bytes:
        """Read a file of the guest, by its absolute path.

        Raises GuestError if it does not exist, has more than ``largest`` bytes (256 MiB), or is endless.
        """
        with step("get", source), self._explained(f"reading {source}"):
            return self._commands.get(source, time_limit=time_limit, largest=largest)

    def make_folder(self, path: str) -> None:
        """Make a folder that every user may write to, with the lab's agent; an existing one stays as it is.

        Failures are ignored: the guest's file system may be read-only.
        """
        if self._qemu.agent is None:
            raise GuestError(f"no folder can be made in a guest that is {self.state}")
        with step("make folder", path), self._explained(f"making {path}"):
            self._qemu.agent.run(["mkdir", "-p", "-m", "1777", path], time_limit=COMMAND_LIMIT)

    def ktap(self, *suites: str) -> TestRun:
        """The results of KUnit's suites, by default of all that have run.

        Raises UnsupportedError for a kernel without KUnit or its files in debugfs, UsageError for an unknown suite.
        """
        from orchestrator.guest.kernel_tests import kunit_results  # parsers that few guests need

        return kunit_results(self, suites)

    def stop_command(self) -> None:
        """Kill the command that another thread runs in the guest; its ``run`` then returns."""
        if self._qemu.agent is not None:
            self._qemu.agent.stop()

    def read_memory(self, address: int, size: int) -> bytes:
        """Read the guest's kernel memory through QEMU: the guest cannot forge it.

        ``address`` is a kernel virtual address, ``size`` in bytes.
        """
        if self._qemu.monitor is None:
            raise GuestError(f"a guest that is {self.state} has no memory to read")
        with self._explained("reading memory"):
            return self._qemu.monitor.read_memory(address, size)

    def keep_core(self) -> None:
        """Write the vmcore into ``core_file``, unless there is one already, or the guest is gone.

        ``say`` gets a line if that fails, or if debuggers will lack something. From any thread.
        """
        file, monitor = self.core_file, self._qemu.monitor
        if file is None or monitor is None:
            return
        with self._writing_core:  # QEMU's watch may be at it, and the file incomplete
            if self.pid is None or file.exists():
                return
            try:
                with step("write a vmcore", str(file)):
                    if not write_vmcore(monitor, file):
                        self.say(f"note: {file}: {LACKS_NOTE}")
            except (GuestError, OSError) as error:
                self.say(f"warning: no vmcore of {self.name}: {error}")

    def stub(self) -> Stub:
        """QEMU's gdb stub. The guest has stopped, until it is detached."""
        if self._qemu.monitor is None or self.state is not State.READY:
            raise GuestError(f"a guest that is {self.state} cannot be debugged")
        with self._explained("being stopped for a debugger"):
            if self._stub is None:
                self._qemu.never_rest()
                self._stub = Stub(self._monitor)
            self._stub.stop()
        return self._stub

    @contextlib.contextmanager
    def counted_interrupts(self, ring: PrivilegeRing = 0) -> Iterator[Counter[int]]:
        """Count, from outside, the traps and interrupts that hit code of a ring, by vector."""
        if self._qemu.monitor is None:
            raise GuestError(f"a guest that is {self.state} has no interrupts")
        try:
            with counted_interrupts(self._qemu.monitor, ring) as counts:
                yield counts
        except FAILURES:  # the verb that failed has explained it
            raise
        except GuestError as error:
            with self._explained("counting interrupts"):
                raise error

    def check_console(self, mark: int = 0) -> None:
        """Raise GuestOops or GuestPanic if the kernel has reported trouble since ``mark`` (see ``reports``).

        Raises HostError if reports may be missing because the disk of the console's log is full.
        """
        unexpected = self.reports(mark, self.expected_reports)
        if unexpected:
            raise trouble_of(unexpected, self.console.path)
        self.console.check_room()

    def check_taint(self, before: int = 0, *, has_reported: bool = False) -> None:
        """Raise GuestOops if trouble has tainted the kernel since its mask was ``before``.

        With ``has_reported``, an expected report explains the taints that accompany reports. Does nothing if the guest
        is gone.
        """
        if self.state is not State.READY or self.pid is None or self.has_failed:
            return
        try:
            new = troubles(before, taint_mask(self), has_reported=has_reported)
        except GuestError as error:
            if isinstance(error, GuestExit) or not has_reported:
                raise
            return  # the reported trouble has stopped the agent too
        if new:
            what = f"the guest's kernel has become tainted: {', '.join(new)}"
            raise GuestOops(what, hint="the console shows no report of it; the kernel's log may: dmesg")

    def reports(self, mark: int = 0, expected: Sequence[re.Pattern[str]] = ()) -> list[KernelReport]:
        """The kernel's reports since ``mark`` (a ``console.length()``) without ``expected`` ones, up to REPORTS_MAX.

        Leaves out the answer to the lab's NMI, which the hanging guest's error has. Leaves out panics if the kernel
        still answers: a program has printed those.
        """
        kernel_reports = (report for report in self.console.reports(mark) if not answers_interruption(report))
        if self.machine.timing == "instructions" and (self.machine.root is not None or self.machine.data):
            expected = (*expected, _WAITS_FOR_THE_HOST)
        reports = list(
            itertools.islice((report for report in kernel_reports if not report.is_expected(expected)), REPORTS_MAX)
        )
        if any(report.trouble is Trouble.PANIC for report in reports) and self._answers():
            reports = [report for report in reports if report.trouble is not Trouble.PANIC]
        return reports

    def _answers(self) -> bool:
        if self.state is not State.READY or self._qemu.agent is None:
            return False
        try:
            self._qemu.agent.ping(_ANSWER_LIMIT)
        except GuestError:
            return False
        return True

    def check_alive(self, doing: str) -> None:
        """Raise GuestExit or GuestPanic if the guest has ended by itself and no verb has raised that yet."""
        if self.state in (State.READY, State.PAUSED) and self.pid is None and not self.has_failed:
            with self._explained(doing):
                raise GuestConnectionLost("it has ended by itself")

    def drain_console(self) -> None:
        """Wait until the kernel's log so far is on the console.

        A kernel prints its log in order, on whatever CPU: once the lab's own line is there, so is everything before it.
        Also returns if that line does not come: the guest is dead, or its console prints no alerts. Endless output of a
        program does not delay it.
        """
        if self._qemu.agent is None or self.state is not State.READY:
            return
        line = f"{END_OF_LOG} {secrets.token_hex(8)}"
        mark = self.console.length()
        with step("drain the console"), self._qemu.awake(), contextlib.suppress(GuestError):
            # At alert level, as the guest's log level may be low.
            self._agent.put(f"<1>{line}\n".encode(), "/dev/kmsg", mode=0o644, time_limit=_LOG_LIMIT)
            for lines, _ in self.console.followed(mark, _LOG_LIMIT, _LOG_BYTES):
                if any(line in printed for printed in lines):
                    return

    def _run(self, argv: Sequence[str], time_limit: float, listener: Listener | None = None) -> CommandResult:
        if isinstance(argv, str):
            raise UsageError(f"found {argv!r}; a command is a list of words", hint=f"{argv.split()!r}")
        self.before_command(argv)
        with self._explained(f"running {command_name(argv)}"):
            return self._commands.run(argv, time_limit=time_limit, listener=listener)

    @property
    def _commands(self) -> Channel:
        if self._channel is None or self.state is State.PAUSED:
            raise GuestError(f"a guest that is {self.state} accepts no commands")
        return self._channel


def _failure(result: CommandResult, how: str) -> CommandFailed:
    quoted = (plain_lines(printed[-_QUOTED_BYTES:])[-QUOTED_LINES:] for printed in (result.stdout, result.stderr))
    return CommandFailed(f"`{' '.join(result.argv)}` {how}", detail=list(itertools.chain(*quoted)))


Watch = Callable[[Guest], None]
"""Receives a guest before it starts."""
