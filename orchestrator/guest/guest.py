# SPDX-License-Identifier: GPL-2.0-only
"""A running guest, and the verbs for what happens in it.

Its life is in ``life``, saving and restoring in ``saving``, how commands travel in ``channel``.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import CommandFailed, GuestConnectionLost, GuestError, GuestExit, GuestOops, UsageError
from orchestrator.guest.channel import COMMAND_LIMIT, OUTPUT_MAX, Channel, CommandResult, Listener, command_name
from orchestrator.guest.console import REPORTS_MAX, plain_lines
from orchestrator.guest.diagnosis import trouble_of
from orchestrator.guest.end_of_log import wait_for_end_of_log
from orchestrator.guest.interrupts import Ring, counted_interrupts
from orchestrator.guest.kernel_reports import KernelReport, Trouble
from orchestrator.guest.kernel_tests import kunit_results
from orchestrator.guest.life import FAILURES, State
from orchestrator.guest.panic import answers_interruption
from orchestrator.guest.saving import SavableGuest
from orchestrator.guest.taint import taint_mask, troubles
from orchestrator.ktap.results import TestRun
from orchestrator.steps import step

_POLL_PAUSE = ("sleep", "0.1")
"""Runs in the guest between two polls: on the exact clock, guest time stands still while the guest is idle."""

_LAST_ATTEMPT_LIMIT = 1.0
"""Host seconds that the last poll of a condition gets at least."""

_ANSWER_LIMIT = 10.0
"""Host seconds for a kernel that seems to have panicked to answer; QEMU's end is noticed before."""

_QUOTED_BYTES = 4096
_QUOTED_LINES = 10


_WAITS_FOR_THE_HOST = re.compile(r"INFO: task .{1,60} blocked (?:in I/O wait )?for more than")
"""No report of a guest that counts instructions and has a disk: while the host reads the disk such a guest is idle, and
its clock jumps from timer to timer. Minutes of it pass in a second of a busy host's."""


class Guest(SavableGuest):
    """One guest. Its console log and QEMU's messages go into ``directory``, as ``NAME.console`` and ``NAME.qemu``.

    Used as a context manager it boots on entry, unless it is ready already, and is killed on exit. A guest belongs to
    the thread that starts it. ``expected_reports`` are patterns: what its kernel reports is no trouble where one of
    them is found in the report. ``say`` gets a line when it has to wait for other guests. ``terminal`` is a device's
    name. With ``memory`` of ours it can be saved. It is ended when either log has more than ``console_max`` bytes.
    ``has_failed`` once a verb has raised that it is gone, or hangs.
    """

    def run(
        self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT, listener: Listener | None = None
    ) -> CommandResult:
        """Run a program in the guest to its end, whatever its status. A ``listener`` gets its output as it comes.

        It is called with the stream and the bytes, which the result has not got then. Status 127: there is no such
        program; 128 + N: signal N killed it. Raises CommandTimeout when it was killed after ``time_limit``, GuestError
        when it printed more than 256 MiB.
        """
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
                self._run(_POLL_PAUSE, COMMAND_LIMIT)
                result = self._run(argv, max(left, _LAST_ATTEMPT_LIMIT))
                attempts += 1
            waiting.note(f"attempts: {attempts}")
        return result

    def put(self, content: bytes | Path, target: str, *, mode: int = 0o644, time_limit: float = COMMAND_LIMIT) -> None:
        """Write a file in the guest, from bytes or from a file of the host.

        ``target`` is an absolute path; what is there is replaced. ``mode`` has the permissions. Raises GuestError where
        the guest refuses it, OSError for a file of the host that cannot be read.
        """
        with step("put", target), self._explained(f"writing {target}"):
            self._commands.put(content, target, mode=mode, time_limit=time_limit)

    def get(self, source: str, *, time_limit: float = COMMAND_LIMIT, largest: int = OUTPUT_MAX) -> bytes:
        """Read a file of the guest, by its absolute path.

        Raises GuestError for one that is not there, of more than ``largest`` bytes (256 MiB), or without an end.
        """
        with step("get", source), self._explained(f"reading {source}"):
            return self._commands.get(source, time_limit=time_limit, largest=largest)

    def make_folder(self, path: str) -> None:
        """Have the lab's agent make a folder that every user may write to; one that is there stays as it is.

        None is made where the guest's file system takes none.
        """
        if self._qemu.agent is None:
            raise GuestError(f"a guest that is {self.state} takes no folder")
        with step("make folder", path), self._explained(f"making {path}"):
            self._qemu.agent.run(["mkdir", "-p", "-m", "1777", path], time_limit=COMMAND_LIMIT)

    def ktap(self, *suites: str) -> TestRun:
        """The results of KUnit's suites, by default of all that have run.

        Raises UnsupportedError for a kernel without KUnit or its files in debugfs, UsageError for an unknown suite.
        """
        return kunit_results(self, suites)

    def stop_command(self) -> None:
        """Kill the command that another thread runs in it; its ``run`` returns then."""
        if self._qemu.agent is not None:
            self._qemu.agent.stop()

    def read_memory(self, address: int, size: int) -> bytes:
        """Bytes of the guest's kernel memory, read by QEMU: the guest cannot forge them.

        ``address`` is a virtual address of the kernel's, ``size`` in bytes.
        """
        if self._qemu.monitor is None:
            raise GuestError(f"a guest that is {self.state} has no memory to read")
        with self._explained("reading memory"):
            return self._qemu.monitor.read_memory(address, size)

    @contextlib.contextmanager
    def counted_interrupts(self, ring: Ring = 0) -> Iterator[Counter[int]]:
        """Count the traps and interrupts that fall into code of a ring meanwhile, by vector, from outside."""
        if self._qemu.monitor is None:
            raise GuestError(f"a guest that is {self.state} takes no interrupts")
        try:
            with counted_interrupts(self._qemu.monitor, ring) as counts:
                yield counts
        except FAILURES:  # the verb that met it has explained it
            raise
        except GuestError as error:
            with self._explained("counting interrupts"):
                raise error

    def check_console(self, mark: int = 0) -> None:
        """Raise GuestOops, or GuestPanic, when the kernel has reported trouble since ``mark`` (see ``reports``).

        Raises HostError where its report may be missing: the disk of the console's log is full.
        """
        unexpected = self.reports(mark, self.expected_reports)
        if unexpected:
            raise trouble_of(unexpected, self.console.path)
        self.console.check_room()

    def check_taint(self, before: int = 0, *, has_reported: bool = False) -> None:
        """Raise GuestOops where trouble has tainted the kernel since its mask was ``before``.

        Where the kernel ``has_reported`` trouble, and that was expected, what comes with a report is none. Nothing is
        asked of a guest that is gone.
        """
        if self.state is not State.READY or self.pid is None or self.has_failed:
            return
        try:
            new = troubles(before, taint_mask(self), has_reported=has_reported)
        except GuestError as error:
            if isinstance(error, GuestExit) or not has_reported:
                raise
            return  # what was reported has stopped the agent as well
        if new:
            what = f"the guest's kernel has become tainted: {', '.join(new)}"
            raise GuestOops(what, hint="the console shows no report of it; the kernel's log may: dmesg")

    def reports(self, mark: int = 0, expected: Sequence[re.Pattern[str]] = ()) -> list[KernelReport]:
        """What the kernel has reported since ``mark`` (a ``console.length()``) and was not ``expected``.

        At most ``REPORTS_MAX``. What it answered to the lab's own NMI is none: the error of the guest that hung has it.
        A panic is none where the kernel still answers: a program has printed it.
        """
        own = (report for report in self.console.reports(mark) if not answers_interruption(report))
        if self.machine.timing == "instructions" and (self.machine.root is not None or self.machine.data):
            expected = (*expected, _WAITS_FOR_THE_HOST)
        reports = list(itertools.islice((report for report in own if not report.is_expected(expected)), REPORTS_MAX))
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

    def _run(self, argv: Sequence[str], time_limit: float, listener: Listener | None = None) -> CommandResult:
        if isinstance(argv, str):
            raise UsageError(f"found {argv!r}; a command is a list of words", hint=f"{argv.split()!r}")
        with self._explained(f"running {command_name(argv)}"):
            return self._commands.run(argv, time_limit=time_limit, listener=listener)

    @property
    def _commands(self) -> Channel:
        if self._channel is None or self.state is State.PAUSED:
            raise GuestError(f"a guest that is {self.state} takes no commands")
        return self._channel


def _failure(result: CommandResult, how: str) -> CommandFailed:
    return CommandFailed(
        f"`{' '.join(result.argv)}` {how}", detail=[*_last_lines(result.stdout), *_last_lines(result.stderr)]
    )


def _last_lines(printed: bytes) -> list[str]:
    return plain_lines(printed[-_QUOTED_BYTES:])[-_QUOTED_LINES:]
