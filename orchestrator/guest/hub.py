# SPDX-License-Identifier: GPL-2.0-only
"""A private network of guests: each QEMU has one end of a socket pair, and receives what the others send."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from dataclasses import dataclass, field

from orchestrator.guest.machine import Lan

_FRAME_MAX = 128 << 10
"""Bytes; QEMU's own limit is 68 KiB (NET_BUFSIZE)."""

_WAITING_MAX = 256
"""Frames queued for a guest that does not read; beyond that the oldest are dropped, as on any network."""

_GUESTS_MAX = 250


@dataclass
class _Port:
    """The socket pair of one guest, and its queued frames. QEMU's end stays open for a guest that boots again."""

    ours: socket.socket
    theirs: socket.socket
    waiting: deque[bytes] = field(default_factory=lambda: deque(maxlen=_WAITING_MAX))


class Hub:
    """Forwards frames between guests until closed. The sockets have no names, so no other process can reach them."""

    def __init__(self) -> None:
        self._ports: dict[int, _Port] = {}
        self._epoll = select.epoll()
        self._ending, self._end = socket.socketpair()
        self._epoll.register(self._ending, select.EPOLLIN)
        self._thread = threading.Thread(target=self._work, name="hub", daemon=True)
        self._thread.start()

    def next_lan(self) -> Lan:
        """A place for another guest on the network."""
        assert len(self._ports) < _GUESTS_MAX
        port = _Port(*socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        port.ours.settimeout(0.0)
        self._ports[port.ours.fileno()] = port
        self._epoll.register(port.ours, select.EPOLLIN)
        return Lan(port.theirs.fileno(), len(self._ports))

    def close(self) -> None:
        self._end.close()
        self._thread.join()
        self._ending.close()
        self._epoll.close()
        for port in self._ports.values():
            port.ours.close()
            port.theirs.close()

    def _work(self) -> None:
        while True:
            for number, events in self._epoll.poll():
                if number == self._ending.fileno():
                    return
                port = self._ports[number]
                if events & select.EPOLLOUT:
                    self._send(port)
                if events & select.EPOLLIN:
                    frame = port.ours.recv(_FRAME_MAX)
                    for other_port in list(self._ports.values()):
                        if other_port is not port:
                            other_port.waiting.append(frame)
                            self._send(other_port)

    def _send(self, port: _Port) -> None:
        with contextlib.suppress(BlockingIOError):
            while port.waiting:
                port.ours.send(port.waiting[0])
                port.waiting.popleft()
        self._epoll.modify(port.ours, select.EPOLLIN | (select.EPOLLOUT if port.waiting else 0))
