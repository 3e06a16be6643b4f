# SPDX-License-Identifier: GPL-2.0-only
"""What an sshd in the guest answers: the first bytes of a connection, and its SFTP."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import paramiko

from orchestrator.guest import ssh
from orchestrator.guest.ssh import SshChannel

_LIMIT = 60.0
"""Seconds of the host's time for an answer. None of them is waited for: behind an input its end is closed."""

_LARGEST = 100_000
"""Bytes of the file that is asked for."""


class _Greeting:
    """A port whose only answer to a connection is the input that was given last."""

    def __init__(self) -> None:
        self._listening = socket.create_server((ssh.HOST, 0))
        self._inputs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.port: int = self._listening.getsockname()[1]
        self.key = paramiko.ECDSAKey.generate()
        threading.Thread(target=self._answer, daemon=True).start()

    def give(self, data: bytes) -> None:
        """The input for the next connection."""
        self._inputs.put(data)

    def _answer(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(self._inputs.get())
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):  # a reset would take away what was not read yet
                    pass


@cache
def _greeting() -> _Greeting:
    return _Greeting()


def read_ssh_greeting(data: bytes) -> None:
    """The first bytes of a server's, in one attempt to connect; a failure of these leads to the next one."""
    server = _greeting()
    server.give(data)
    with contextlib.suppress(*ssh._FAILURES):
        ssh._connected(server.port, server.key, server.key, _LIMIT, ssse3=False)
    # Paramiko leaves the timer of a handshake that failed, a thread for 15 s: 6000 of them at 400 inputs a second.
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()


class _Session:
    """A session that answers an input, whatever is sent."""

    closed = False

    def __init__(self, data: bytes) -> None:
        self._data = data

    def recv(self, size: int) -> bytes:
        """The next bytes of the input."""
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    def get_name(self) -> str:
        """For paramiko's log."""
        return "session"

    def send(self, data: bytes) -> int:
        """Nobody reads it."""
        return len(data)

    def invoke_subsystem(self, name: str) -> None:
        """Any is there."""

    def exec_command(self, command: str) -> None:
        """There is no shell."""
        raise paramiko.SSHException("no shell")

    def settimeout(self, seconds: float) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        """There is nothing to close."""


class _Transport:
    """A connection whose sessions answer an input."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open_session(self, **limits: Any) -> _Session:
        """A new one."""
        return _Session(self._data)

    def is_active(self) -> bool:
        """It never breaks."""
        return True

    def join(self, seconds: float) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        """There is nothing to close."""


def read_sftp_replies(data: bytes) -> None:
    """Replies to the requests that read a file, or write one where the input's first byte is odd."""
    client = SimpleNamespace(get_transport=lambda: _Transport(data[1:]))
    channel = SshChannel(cast(paramiko.SSHClient, client))
    if data and data[0] % 2:
        channel.put(b"content", "/tmp/file", mode=0o644, time_limit=_LIMIT)
    else:
        channel.get("/tmp/file", time_limit=_LIMIT, largest=_LARGEST)
