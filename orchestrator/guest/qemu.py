# SPDX-License-Identifier: GPL-2.0-only
"""One QEMU and the lab's ends of its sockets, from start to end: boot, console, panics, channels."""

from __future__ import annotations

import contextlib
import re
import select
import shlex
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, GuestExit, GuestHang, HostError, LabError
from orchestrator.guest.channel import Channel
from orchestrator.guest.console import QUOTED_LINES, Console, Trouble, plain_lines, sign_in
from orchestrator.guest.diagnosis import DYING_LIMIT, BootStub, is_stopped
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

# Waiting for the agent of a guest that boots, or first does its unattended work, while passing on the console.
#
# A boot stub that refuses the CPU ends the wait. A guest with unattended work stops itself before it, through QEMU's
# pvpanic device: at that exact instruction, so that what it executes does not depend on when the host looks.

LONGEST_WORK = 24 * 3600.0
"""Limit of seconds for unattended work, whatever the guest prints meanwhile."""

_LISTENING_INTERVAL = 0.5


_STOPPING_INTERVAL = 0.1
"""The same until a guest has stopped itself, as it does nothing until the host looks."""


BootListener = Callable[[Sequence[str]], None]
"""Receives the console's new lines a few times per second, possibly none."""


class StopBeforeWork:
    """A guest's stop before its work, if its machine has the device for it; ``read`` is called meanwhile."""

    def __init__(self, monitor: Monitor, read: Callable[[], None], *, is_expected: bool) -> None:
        self._monitor, self._read = monitor, read
        self._is_watched = self.is_expected = is_expected

    def check(self) -> None:
        """Continue a guest that has stopped itself. One that stops a second time has panicked, and is ended."""
        if self._is_watched and self._monitor.status() == "guest-panicked":
            if self.is_expected:
                self._read()
            self._monitor.command("cont" if self.is_expected else "quit")
            self.is_expected = False


def wait_for_boot(
    agent: FramedChannel,
    console: Console,
    stub: BootStub,
    stop: StopBeforeWork,
    time_limit: float,
    listener: BootListener | None = None,
) -> None:
    """Wait for the agent. Raises GuestHang after ``time_limit``, UnsupportedError for a CPU that the kernel refuses.

    A ``listener`` receives every console line; with it, new output restarts the time limit.
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
        finally:  # reads the last lines of a dying guest too
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
            raise GuestHang(f"it is still working after {LONGEST_WORK / 3600:g} hours, the limit")


# Watching for a panic without a restart, and for too much output. QEMU is then ended, which callers notice.
#
# A panic usually ends QEMU (``panic=-1`` restarts at once, and QEMU has -no-reboot). It does not if the guest has set
# ``kernel.panic`` to seconds, or if the panic itself fails: Linux 6.1 on i686 hangs in it after a double fault. Without
# the watch only a command's time limit would end that.
#
# Programs can print what looks like a panic, so QEMU's registers must also show a CPU in the kernel with interrupts
# off. That excludes guests that have set ``kernel.panic`` to 0, as panic() then enables interrupts.
#
# The limit of file sizes (RLIMIT_FSIZE) does not bind QEMU: its threads block SIGXFSZ, and QEMU 7.2 continues if a
# write of the console's log fails. So the watch checks the files' sizes.

CONSOLE_MAX = 256 << 20
"""Bytes of the console's log, or of QEMU's messages; a night of a kernel's own tests prints a few megabytes."""

_WATCH_INTERVAL = 0.2
"""Seconds between checks of the files, in which an emulated serial port prints a megabyte."""

_LOOKS = 5
_PAUSE = 0.1
"""Consecutive checks of the registers without a new console byte, and the seconds between them."""

# x86_cpu_dump_state() of QEMU 7.2 and 10.0, target/i386/cpu-dump.c.
_CPU = re.compile(
    r"\b[ER]FL=(?P<flags>[0-9a-f]{8}) \[[^\]]{1,10}\] CPL=(?P<ring>\d) II=\d A20=\d SMM=\d HLT=(?P<halted>\d)"
)
_INTERRUPTS = 0x200


class QemuWatch:
    """A thread that watches a QEMU until stopped, or until it has ended QEMU.

    ``exceeded`` is the file with more than ``largest`` bytes; panics are looked for once there is a ``monitor``. With
    ``before_end``, QEMU waits when the guest resets itself; it is ended after that call, as after a panic.
    """

    def __init__(self, process: Spawned, console: Console, messages: Path, largest: int) -> None:
        self.largest = largest
        self.exceeded: Path | None = None
        self.monitor: Monitor | None = None
        self.before_end: Callable[[], None] | None = None
        self._process, self._console, self._files = process, console, (console.path, messages)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="QEMU's watch", daemon=True)
        self._thread.start()

    def stop(self, end: Callable[[], None]) -> None:
        """Stop watching; ``end`` ends QEMU, which the thread may be waiting for."""
        self._stopped.set()
        end()
        self._thread.join()

    def _watch(self) -> None:
        mark = printed = 0
        has_panicked = False
        looks: list[set[int]] = []
        while not self._stopped.wait(_PAUSE if looks else _WATCH_INTERVAL):
            for file in self._files:
                with contextlib.suppress(OSError):  # not there yet, or the file system is gone
                    if file.stat().st_size > self.largest:
                        self.exceeded = file
                        self._process.kill()
                        return
            if self.before_end is not None and self._has_reset():
                self._end()
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
                        self._end()
                        return
                except GuestError:  # QEMU has ended or is being ended, as expected
                    looks, self.monitor = [], None

    def _has_reset(self) -> bool:
        try:
            return self.monitor is not None and self.monitor.status() == "shutdown"
        except GuestError:  # QEMU has ended or is being ended
            self.before_end = None
            return False

    def _end(self) -> None:
        assert self.monitor is not None
        if self.before_end is not None:
            self.before_end()
        with contextlib.suppress(GuestError):
            self.monitor.command("quit")


def _stuck_cpus(monitor: Monitor) -> set[int]:
    """The CPUs in the kernel with interrupts off; empty while the guest is paused."""
    return cpus_without_interrupts(monitor.human("info registers -a")) if monitor.status() == "running" else set()


def cpus_without_interrupts(registers: str) -> set[int]:
    """The CPUs in the kernel with interrupts off, from the output of ``info registers -a``.

    A halted CPU in this state is offline, or was stopped by the panicking CPU, which never halts.
    """
    cpus = enumerate(_CPU.finditer(registers))
    return {
        number
        for number, cpu in cpus
        if cpu["ring"] == "0" and cpu["halted"] == "0" and not int(cpu["flags"], 16) & _INTERRUPTS
    }


# On the exact clock a guest without work goes from timer to timer, and keeps a processor of the host as busy as a guest
# with work: a third of what the processors did while tests with guests ran.

_IDLE = 0.02
"""Seconds without a request, after which a guest is stopped. To stop and continue it takes a millisecond."""


class Rest:
    """A thread that stops a guest's CPUs while nothing is asked of it; for the guest no time passes.

    Nothing is sent to a QEMU that is stopped itself: it would not answer within the request's limit.
    """

    def __init__(self, monitor: Monitor, process: int) -> None:
        self._monitor, self._process = monitor, process
        self._lock = threading.Lock()
        self._held, self._since = 0, time.monotonic()
        self._is_stopped = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="QEMU's rest", daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Let the guest run until ``release``, as often as it is held."""
        with self._lock:
            self._held += 1
            if self._is_stopped and not is_stopped(self._process):
                with contextlib.suppress(GuestError):  # QEMU has ended, which the next request finds out
                    self._monitor.command("cont")
                    self._is_stopped = False

    def release(self) -> None:
        with self._lock:
            self._held -= 1
            self._since = time.monotonic()

    def end(self) -> None:
        """Leave the guest as it is from now on."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_IDLE):
            with self._lock:
                if self._held or self._is_stopped or time.monotonic() < self._since + _IDLE:
                    continue
                with contextlib.suppress(GuestError):  # QEMU has ended or is being ended
                    if not is_stopped(self._process) and self._monitor.status() == "running":
                        self._is_stopped = True  # first: QEMU may do it, and answer too late
                        self._monitor.command("stop")


# A QEMU that ends before it has made the machine: no guest has run, so the host lacks a usable QEMU.

_NO_MEMORY = "Cannot allocate memory"
_NO_SANDBOX = "-sandbox support is not enabled"


def start_failure(error: GuestError, command_line: Sequence[str], process: Spawned, messages: Path) -> LabError:
    """The error for a monitor that did not answer: ``error`` itself if QEMU lives or was killed."""
    status = exit_status(process, DYING_LIMIT)
    if status is None or status == -signal.SIGKILL:
        return error
    printed = Console(messages).last_lines(QUOTED_LINES)
    hint = (
        f"the lab needs a QEMU of {'.'.join(map(str, OLDEST_QEMU))} or newer that works: `{PROGRAM} doctor` checks it"
    )
    if any(_NO_MEMORY in line for line in printed):
        hint = "allow more memory (ulimit -v): QEMU needs 1 GiB of addresses for translated code, besides the guest's"
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
