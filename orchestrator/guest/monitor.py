# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's control channel (QMP): the view of a guest from outside, which the guest cannot forge."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Iterator

from qemu.qmp import QMPError
from qemu.qmp.legacy import QEMUMonitorProtocol

from orchestrator.errors import GuestError
from orchestrator.guest.shared_file import SharedFile

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
        self._memory = SharedFile()
        self._memory_name: str | None = None
        try:
            self._protocol.connect()
            self._protocol.settimeout(_ANSWER_LIMIT)
        except (TimeoutError, QMPError, OSError) as error:
            self.close()
            raise GuestError(f"QEMU's monitor does not answer ({error})") from None

    def command(self, name: str, **arguments: object) -> object:
        """Run a QMP command and return what QEMU answers."""
        try:
            with self._lock:
                return self._protocol.cmd(name, **arguments)
        except (TimeoutError, QMPError, OSError) as error:
            raise GuestError(f"QEMU's monitor: {name} failed: {error}") from None

    def pass_descriptor(self, name: str, descriptor: int) -> None:
        """Give QEMU a copy of an open file, under a name."""
        with self._lock:
            try:
                self._protocol.send_fd_scm(descriptor)
            except (QMPError, OSError) as error:
                raise GuestError(f"QEMU's monitor takes no file: {error}") from None
            self.command("getfd", fdname=name)

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
        try:
            self._protocol.send_fd_scm(descriptor)
        except (QMPError, OSError) as error:
            raise GuestError(f"QEMU's monitor takes no file: {error}") from None
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

    def read_memory(self, address: int, size: int, cpu: int = 0) -> bytes:
        """``size`` bytes at a virtual address, through the page tables of one virtual CPU."""
        if not 0 < size <= _READ_MAX or not 0 <= address < 1 << 64:
            raise GuestError(f"cannot read {size} bytes of guest memory at {address:#x}")
        if self._memory_name is None:
            with self._lock:
                _, self._memory_name = self._pass(self._memory.descriptor)
        # QMP numbers are signed: the upper half of the address space is negative.
        value = address - (1 << 64) if address >= 1 << 63 else address
        arguments = {"val": value, "size": size, "filename": self._memory_name, "cpu-index": cpu}
        try:
            self.command("memsave", **arguments)
        finally:
            content = self._memory.take()
        if len(content) != size:
            raise GuestError(f"the guest has no {size} bytes of memory at {address:#x}")
        return content

    def close(self) -> None:
        """Close the connection; the guest runs on."""
        # With a QEMU that has ended the protocol reports an error.
        with self._lock, contextlib.suppress(QMPError, EOFError, OSError):
            self._protocol.close()
        self._memory.close()
