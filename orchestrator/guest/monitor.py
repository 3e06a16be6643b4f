# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's control channel (QMP): the view of a guest from outside, which the guest cannot forge; its interrupts."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from qemu.qmp import QMPError
from qemu.qmp.legacy import QEMUMonitorProtocol

from orchestrator.errors import GuestError

_ANSWER_LIMIT = 60.0
"""Seconds; a busy host may leave QEMU waiting for several."""
_READ_MAX = 32 << 20
"""Bytes; the text of a Debian kernel for x86_64 has 15 MB."""
_FORWARDED = re.compile(r"^\s*TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s", re.MULTILINE)

# Its log repeats, with tracebacks, what is raised anyway.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


class Monitor:
    """One connection to one QEMU, for one thread at a time. Raises GuestError when QEMU refuses, or is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._protocol = QEMUMonitorProtocol(connection)
        self._lock = threading.RLock()
        # What QEMU writes and the lab reads: in memory, without a name on a disk; it ends with its last process.
        self._memory = os.memfd_create("orchestrator", os.MFD_CLOEXEC)
        self._memory_name: str | None = None
        try:
            self._protocol.connect()
            self._protocol.settimeout(_ANSWER_LIMIT)
        except (TimeoutError, QMPError, OSError) as error:
            self.close()
            raise GuestError(f"QEMU's monitor does not answer ({error})") from None

    def command(self, name: str, **arguments: object) -> object:
        try:
            with self._lock:
                return self._protocol.cmd(name, **arguments)
        except (TimeoutError, QMPError, OSError) as error:
            raise GuestError(f"QEMU's monitor: {name} failed: {error}") from None

    def pass_descriptor(self, name: str, descriptor: int) -> None:
        with self._lock:
            self._send(descriptor)
            self.command("getfd", fdname=name)

    def _send(self, descriptor: int) -> None:
        try:
            self._protocol.send_fd_scm(descriptor)
        except (QMPError, OSError) as error:
            raise GuestError(f"QEMU's monitor takes no file: {error}") from None

    def human(self, line: str) -> str:
        """Run a command of QEMU's human monitor, for what QMP has no command for."""
        return str(self.command("human-monitor-command", **{"command-line": line}))

    @contextlib.contextmanager
    def passed(self, descriptor: int) -> Iterator[str]:
        """Let QEMU have an open file; gives the name by which QEMU's commands open it."""
        with self._lock:
            number, name = self._pass(descriptor)
        try:
            yield name
        finally:
            # A QEMU that is gone has closed it.
            with contextlib.suppress(GuestError):
                self.command("remove-fd", **{"fdset-id": number})

    def _pass(self, descriptor: int) -> tuple[int, str]:
        """Pass a file to QEMU: the number of the set of descriptors that it is in, and its name."""
        self._send(descriptor)
        match self.command("add-fd"):
            case {"fdset-id": int(number), "fd": int(theirs)}:
                # A QEMU that has become another user may still open it there: the kernel lets a process see its own
                # descriptors (proc_fd_permission()), and all may open a memfd.
                return number, f"/proc/self/fd/{theirs}"
            case answer:
                raise GuestError(f"QEMU's monitor: add-fd answered {answer}")

    def forwarded_port(self) -> int:
        """The port of the host's loopback that QEMU forwards to the guest's sshd."""
        found = _FORWARDED.search(self.human("info usernet"))
        if found is None:
            raise GuestError("QEMU forwards no port to the guest")
        return int(found[1])

    def read_memory(self, address: int, size: int) -> bytes:
        """``size`` bytes at a virtual address, through the page tables of the first virtual CPU."""
        if not 0 < size <= _READ_MAX or not 0 <= address < 1 << 64:
            raise GuestError(f"cannot read {size} bytes of guest memory at {address:#x}")
        if self._memory_name is None:
            with self._lock:
                _, self._memory_name = self._pass(self._memory)
        # QMP numbers are signed: the upper half of the address space is negative.
        value = address - (1 << 64) if address >= 1 << 63 else address
        arguments = {"val": value, "size": size, "filename": self._memory_name, "cpu-index": 0}
        try:
            self.command("memsave", **arguments)
        finally:
            content = os.pread(self._memory, size + 1, 0)
            os.ftruncate(self._memory, 0)  # a kernel's text would stay in the host's memory
        if len(content) != size:
            raise GuestError(f"the guest has no {size} bytes of memory at {address:#x}")
        return content

    def close(self) -> None:
        # With a QEMU that has ended the protocol reports an error.
        with self._lock, contextlib.suppress(QMPError, EOFError, OSError):
            self._protocol.close()
        os.close(self._memory)


# How often did a guest trap? Counted by QEMU, from outside.
#
# The emulator writes a record for every exception and interrupt that it delivers while this log is on. It is on for a
# counting pass only, never while anything is timed, and needs TCG: a KVM guest's traps do not pass through QEMU.
#
# A guest decides how much is logged: 1 KB for each trap. So the log goes into a pipe, and a thread keeps nothing of it
# but the counts. QEMU logs with its big lock held: where nobody read the pipe, not even its monitor would answer.

Ring = Literal[0, 3]
INT3 = 3
"""The breakpoint exception's vector."""

# "     2: v=03 e=0000 i=1 cpl=0 IP=0060:c1093a15 ...", and twenty lines of registers behind each. A pattern that begins
# with a constant is searched for at the speed of memchr().
_RECORDS = {ring: re.compile(rb": v=([0-9a-f]{2}) e=[0-9a-f]{4} i=[01] cpl=%d " % ring) for ring in (0, 3)}
_RECORD_BYTES = 24
"""What the pattern matches."""

_PIPE_BYTES = 1 << 20
"""As large as an ordinary user's pipe may be (/proc/sys/fs/pipe-max-size)."""
_PAUSE_MS = 5
"""Between two readings: QEMU writes each line by itself, and to wake a reader for each takes longer than to log it."""
_PIPE_MODE = 0o622
"""QEMU opens the pipe anew by its name in /proc, perhaps as a user of its own."""


@contextlib.contextmanager
def counted_interrupts(monitor: Monitor, ring: Ring = 0) -> Iterator[Counter[int]]:
    """Count the exceptions and interrupts that fall into code of a ring, by vector; the counter is filled at the end.

    Ring 0 is the kernel, 3 its programs.
    """
    counts: Counter[int] = Counter()
    with _counting_pipe(counts, ring) as pipe, monitor.passed(pipe) as name:
        monitor.human(f'logfile "{name}"')
        monitor.human("log int")
        try:
            yield counts
        finally:
            # Each line is in the pipe when QEMU has written it: the log is line-buffered (util/log.c).
            monitor.human("log none")


@contextlib.contextmanager
def _counting_pipe(counts: Counter[int], ring: Ring) -> Iterator[int]:
    """The end of a pipe to write records to; ``counts`` has those that were written when this ends."""
    reading, writing = os.pipe()
    ending, end = os.pipe()
    os.fchmod(writing, _PIPE_MODE)
    with contextlib.suppress(PermissionError):  # of a user with many pipes; a smaller one only takes longer
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
    """Count records until the other end of ``ending`` is closed, and all that is in the pipe by then."""
    os.set_blocking(reading, False)
    poll = select.poll()
    poll.register(ending, select.POLLIN)
    rest, left = b"", _PIPE_BYTES
    while left > 0:
        # A QEMU that answers no more may still log: of what comes after the end no more is read than a pipe holds.
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
        # Less than a whole record: none is counted twice.
        rest = text[1 - _RECORD_BYTES :]
