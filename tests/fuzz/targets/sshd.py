# SPDX-License-Identifier: GPL-2.0-only
"""What an sshd in the guest answers: the first bytes of a connection."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from functools import cache

import paramiko

from orchestrator.guest import ssh

_LIMIT = 60.0
"""Seconds of the host's time for an answer. None of them is waited for: behind an input its end is closed."""


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
        ssh._attempt(server.port, server.key, server.key, _LIMIT, ssse3=False)
    # Paramiko leaves the timer of a handshake that failed, a thread for 15 s: 6000 of them at 400 inputs a second.
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()
