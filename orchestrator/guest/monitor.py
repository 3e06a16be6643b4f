# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's control channel (QMP): a view of a guest from outside, which the guest cannot forge; its interrupts."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

from qemu.qmp import ExecuteError, QMPError
from qemu.qmp.legacy import QEMUMonitorProtocol

from orchestrator.errors import GuestError, GuestRefusal

_ANSWER_LIMIT = 60.0
"""Seconds; a busy host may leave QEMU waiting for several."""
_READ_MAX = 32 << 20
"""Bytes; the text of a Debian kernel for x86_64 has 15 MB."""
_FORWARDED = re.compile(r"^\s*TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s", re.MULTILINE)

_MIGRATION, _CORE, _STUB = "state", "core", "stub"
"""The names of the files that are passed for a migration and for a dump, and of the socket for a debugger."""

# Its log repeats, with tracebacks, what is raised anyway.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


R = TypeVar("R")


def _sync(call: Callable[..., R], *args: object, **kwargs: object) -> R:
    """A call of QMP's library, which runs an event loop: in another thread if one runs in this, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # none runs
        return call(*args, **kwargs)
    with ThreadPoolExecutor(1) as other_executor:
        return other_executor.submit(call, *args, **kwargs).result()


def _protocol(connection: socket.socket) -> QEMUMonitorProtocol:
    """QMP's protocol on an event loop of its own: it takes its thread's, and a thread may have several guests."""

    def make() -> QEMUMonitorProtocol:
        asyncio.set_event_loop(asyncio.new_event_loop())
        return QEMUMonitorProtocol(connection)

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(make).result()


class Monitor:
    """One connection to one QEMU, for one thread at a time. Raises GuestError if QEMU refuses, or is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._protocol = _protocol(connection)
        self._lock = threading.RLock()
        # A file in memory that QEMU writes and the lab reads; it has no name and ends with its last process.
        self._memory = os.memfd_create("orchestrator", os.MFD_CLOEXEC)
        self._memory_name: str | None = None
        self._stubs = 0
        try:
            greeting = _sync(self._protocol.connect)
            self._protocol.settimeout(_ANSWER_LIMIT)
        except (TimeoutError, QMPError, OSError) as error:
            self.close()
            raise GuestError(f"QEMU's monitor does not answer ({error})") from None
        match greeting:
            case {"QMP": {"version": {"qemu": {"major": int(major), "minor": int(minor)}}}}:
                self.version = (major, minor)
                """QEMU's own."""
            case _:
                self.close()
                raise GuestError("QEMU's monitor does not tell its version")

    def command(self, name: str, **arguments: object) -> object:
        try:
            with self._lock:
                return _sync(self._protocol.cmd, name, **arguments)
        except (TimeoutError, QMPError, OSError) as error:
            kind = GuestRefusal if isinstance(error, ExecuteError) else GuestError
            raise kind(f"QEMU's monitor: {name} failed: {error}") from None

    @contextlib.contextmanager
    def migration_file(self, descriptor: int) -> Iterator[str]:
        """Pass an open file to QEMU for a migration; yields its URI.

        QEMU 11.1 refuses a file by ``fd:``, and 7.2 knows no ``file:``.
        """
        if self.version >= (11, 0):
            with self.passed(descriptor) as (number, _):
                yield f"file:/dev/fdset/{number}"
        else:
            with self._lock:
                self._send(descriptor)
                self.command("getfd", fdname=_MIGRATION)
            yield f"fd:{_MIGRATION}"

    def _send(self, descriptor: int) -> None:
        try:
            _sync(self._protocol.send_fd_scm, descriptor)
        except (QMPError, OSError) as error:
            raise GuestError(f"QEMU's monitor takes no file: {error}") from None

    def human(self, line: str) -> str:
        """Run a command of QEMU's human monitor, if QMP has no equivalent."""
        return str(self.command("human-monitor-command", **{"command-line": line}))

    @contextlib.contextmanager
    def passed(self, descriptor: int) -> Iterator[tuple[int, str]]:
        """Pass an open file to QEMU; yields the number of its descriptor set, and the name that commands open it by."""
        number, name = self._pass(descriptor)
        try:
            yield number, name
        finally:
            # A QEMU that has ended has closed it.
            with contextlib.suppress(GuestError):
                self.command("remove-fd", **{"fdset-id": number})

    def _pass(self, descriptor: int) -> tuple[int, str]:
        """Pass an open file to QEMU: the number of its descriptor set, and its name."""
        with self._lock:
            self._send(descriptor)
            answer = self.command("add-fd")
        match answer:
            case {"fdset-id": int(number), "fd": int(theirs)}:
                # A QEMU that has become another user may still open it there: the kernel lets a process see its own
                # descriptors (proc_fd_permission()), and every user may open a memfd.
                return number, f"/proc/self/fd/{theirs}"
            case _:
                raise GuestError(f"QEMU's monitor: add-fd answered {answer}")

    def dump_memory(self, descriptor: int, *, has_mapping: bool) -> None:
        """Write memory and registers into an open file, as ELF; with the mapping of virtual addresses if wanted."""
        with self._lock:
            self._send(descriptor)
            self.command("getfd", fdname=_CORE)
            self.command("dump-guest-memory", paging=has_mapping, protocol=f"fd:{_CORE}")

    def status(self) -> str:
        """QEMU's word for what the machine does (RunState): ``running``, ``paused``, ``shutdown``, ..."""
        answer = self.command("query-status")
        return str(answer.get("status")) if isinstance(answer, dict) else ""

    def open_stub(self, descriptor: int) -> None:
        """Stop the guest, and connect QEMU's gdb stub to a socket."""
        with self._lock:
            self._send(descriptor)
            self.command("getfd", fdname=_STUB)
            place = {"type": "fd", "data": {"str": _STUB}}
            backend = {"type": "socket", "data": {"addr": place, "server": False}}
            # An earlier one stays until then: QEMU 7.2 crashes after `gdbserver none`.
            self._stubs += 1
            self.command("chardev-add", id=f"{_STUB}{self._stubs}", backend=backend)
            self.human(f"gdbserver chardev:{_STUB}{self._stubs}")

    def forwarded_port(self) -> int:
        """The host's loopback port that QEMU forwards to the guest's sshd."""
        match = _FORWARDED.search(self.human("info usernet"))
        if match is None:
            raise GuestError("QEMU forwards no port to the guest")
        return int(match[1])

    def read_memory(self, address: int, size: int) -> bytes:
        """``size`` bytes at a virtual address, through the page tables of the first virtual CPU."""
        if not 0 < size <= _READ_MAX or not 0 <= address < 1 << 64:
            raise GuestError(f"cannot read {size} bytes of guest memory at {address:#x}")
        if self._memory_name is None:
            _, self._memory_name = self._pass(self._memory)
        # QMP numbers are signed: the upper half of the address space is negative.
        value = address - (1 << 64) if address >= 1 << 63 else address
        arguments = {"val": value, "size": size, "filename": self._memory_name, "cpu-index": 0}
        try:
            self.command("memsave", **arguments)
        finally:
            content = os.pread(self._memory, size + 1, 0)
            os.ftruncate(self._memory, 0)  # frees the host's memory, as much as a kernel's text
        if len(content) != size:
            raise GuestError(f"the guest has no {size} bytes of memory at {address:#x}")
        return content

    def close(self) -> None:
        # With a QEMU that has ended the protocol reports an error.
        with self._lock, contextlib.suppress(QMPError, EOFError, OSError):
            _sync(self._protocol.close)
        self._protocol._aloop.close()
        os.close(self._memory)


# Counting a guest's traps from outside, by QEMU.
#
# While this log is on, the emulator writes a record for every exception and interrupt that it delivers. It is on only
# during a counting pass, never while anything is timed, and needs TCG: a KVM guest's traps do not pass through QEMU.
#
# The guest decides how much is logged, 1 KB per trap. So the log goes into a pipe, and a thread keeps only the counts.
# QEMU logs with its big lock held: without a reader of the pipe, not even its monitor would answer.

Ring = Literal[0, 3]
INT3 = 3
"""The vector of the breakpoint exception."""

# "     2: v=03 e=0000 i=1 cpl=0 IP=0060:c1093a15 ...", each followed by twenty lines of registers. A pattern with a
# constant prefix is searched at the speed of memchr().
_RECORDS = {ring: re.compile(rb": v=([0-9a-f]{2}) e=[0-9a-f]{4} i=[01] cpl=%d " % ring) for ring in (0, 3)}
_RECORD_BYTES = 24
"""The length of a match."""

_PIPE_BYTES = 1 << 20
"""The largest pipe of an ordinary user (/proc/sys/fs/pipe-max-size)."""
_PAUSE_MS = 5
"""Between reads: QEMU writes line by line, and waking a reader for each takes longer than logging it."""
_PIPE_MODE = 0o622
"""QEMU reopens the pipe by its name in /proc, perhaps as another user."""


@contextlib.contextmanager
def counted_interrupts(monitor: Monitor, ring: Ring = 0) -> Iterator[Counter[int]]:
    """Count exceptions and interrupts that hit code of a ring, by vector; the counter is filled at the end.

    Ring 0 is the kernel, 3 its programs.
    """
    counts: Counter[int] = Counter()
    with _counting_pipe(counts, ring) as pipe, monitor.passed(pipe) as (_, name):
        monitor.human(f'logfile "{name}"')
        monitor.human("log int")
        try:
            yield counts
        finally:
            # The log is line-buffered (util/log.c): lines already written are in the pipe.
            monitor.human("log none")


@contextlib.contextmanager
def _counting_pipe(counts: Counter[int], ring: Ring) -> Iterator[int]:
    """The write end of a pipe for records; on exit ``counts`` has them."""
    reading, writing = os.pipe()
    ending, end = os.pipe()
    os.fchmod(writing, _PIPE_MODE)
    with contextlib.suppress(PermissionError):  # the user has many pipes; a smaller one only takes longer
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    thread = threading.Thread(target=_count, args=(reading, ending, counts, _RECORDS[ring]), name="traps", daemon=True)
    thread.start()
    try:
        yield writing
    finally:
        os.close(end)
        thread.join()
        for descriptor in (reading, writing, ending):
            os.close(descriptor)


def _count(reading: int, ending: int, counts: Counter[int], record_of: re.Pattern[bytes]) -> None:
    """Count records until the other end of ``ending`` is closed, including what is in the pipe by then."""
    os.set_blocking(reading, False)
    poll = select.poll()
    poll.register(ending, select.POLLIN)
    rest, left = b"", _PIPE_BYTES
    while left > 0:
        # A QEMU that no longer answers may still log: after the end, read no more than a pipe holds.
        is_ending = bool(poll.poll(_PAUSE_MS))
        try:
            text = os.read(reading, _PIPE_BYTES)
        except BlockingIOError:
            if is_ending:
                return
            continue
        left -= len(text) if is_ending else 0
        text = rest + text
        counts.update(int(record[1], 16) for record in record_of.finditer(text))
        # Less than a whole record, so none is counted twice.
        rest = text[1 - _RECORD_BYTES :]
