# SPDX-License-Identifier: GPL-2.0-only
"""Drains a guest's console until a channel reads it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

_READ_MAX = 1 << 16


@contextlib.contextmanager
def drained(console: socket.socket) -> Iterator[None]:
    """Read and discard what the guest prints; the console's log has it.

    QEMU sends byte by byte, and a socket holds some hundreds of them. When it is full, the guest's port stays busy, and
    a program that prints is blocked: systemd for ever.
    """
    stop, stopped = socket.socketpair()

    def drain() -> None:
        poll = select.poll()
        for end in (console, stopped):
            poll.register(end, select.POLLIN)
        with contextlib.suppress(OSError):  # QEMU has gone; the next call that reads reports it
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
