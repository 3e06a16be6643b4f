# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's control channel (QMP): a view of a guest from outside, which the guest cannot forge."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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
