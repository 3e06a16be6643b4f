# SPDX-License-Identifier: GPL-2.0-only
"""What a console says before anybody listens: taken and forgotten, so that nobody in the guest waits to be heard."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

_READ_MAX = 1 << 16


@contextlib.contextmanager
def taken(console: socket.socket) -> Iterator[None]:
    """Meanwhile, read what comes and forget it (the console's log has it).

    QEMU sends byte by byte, of which a socket holds some hundreds; then the guest's port is busy until they are read,
    and whoever prints waits: systemd for ever.
    """
    stop, stopped = socket.socketpair()

    def take() -> None:
        poll = select.poll()
        for end in (console, stopped):
            poll.register(end, select.POLLIN)
        with contextlib.suppress(OSError):  # QEMU has gone; whoever asks next is told
            while stopped.fileno() not in (number for number, _ in poll.poll()):
                if not console.recv(_READ_MAX):
                    return

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.close()
        thread.join()
        stopped.close()
