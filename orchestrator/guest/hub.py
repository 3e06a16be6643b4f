# SPDX-License-Identifier: GPL-2.0-only
"""A private network of guests: each QEMU connects to a socket of ours, and gets what the others send."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.files import ScratchFolder
from orchestrator.guest.machine import Lan

_HEADER = struct.Struct("!I")
"""Before each frame of QEMU's ``-netdev stream``: its length."""

_FRAME_MAX = 128 << 10
"""Bytes; QEMU's own limit is 68 KiB (NET_BUFSIZE)."""

_WAITING_MAX = 4 << 20
"""Bytes that wait for a guest that does not read; what comes then is lost, as on any network."""

_PATH_MAX = 100
"""Bytes of a socket's path; the kernel takes 107."""

_GUESTS_MAX = 250
_PREFIX = "orchestrator-lan-"


@dataclass
class _Port:
    """One guest's connection, what it has sent of a frame, and what waits for it."""

    connection: socket.socket
    incoming: bytearray = field(default_factory=bytearray)
    waiting: bytearray = field(default_factory=bytearray)


class Hub:
    """Passes frames between guests until it is closed. The socket is in a folder that only the user can enter."""

    def __init__(self) -> None:
        self._folder = ScratchFolder(_PREFIX)
        if len(os.fsencode(self._folder.path)) > _PATH_MAX:
            self._folder.close()
            self._folder = ScratchFolder(_PREFIX, Path("/tmp"))  # noqa: S108 - it is made private
        self._socket = self._folder.path / "hub"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(self._socket))
        self._listening.listen()
        self._listening.settimeout(0.0)
        self._ending, self._end = socket.socketpair()
        self._ports: list[_Port] = []
        self._guests = 0
        self._thread = threading.Thread(target=self._work, name="hub", daemon=True)
        self._thread.start()

    def next_lan(self) -> Lan:
        """The place of one more guest on the network."""
        assert self._guests < _GUESTS_MAX
        self._guests += 1
        return Lan(self._socket, self._guests)

    def close(self) -> None:
        """Disconnect all guests."""
        self._end.close()
        self._thread.join()
        self._ending.close()
        self._folder.close()

    def _work(self) -> None:
        with selectors.DefaultSelector() as selector, self._listening:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._ending, selectors.EVENT_READ)
            while True:
                ready = selector.select()
                if any(key.fileobj is self._ending for key, _ in ready):
                    break
                self._accept(selector)  # first: a frame reaches whoever has connected before it was sent
                for key, events in ready:
                    if key.fileobj is self._listening:
                        continue
                    if events & selectors.EVENT_WRITE:
                        self._send(selector, key.data)
                    else:
                        self._receive(selector, key.data)
            for port in self._ports:
                port.connection.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._listening.accept()
                connection.settimeout(0.0)
                port = _Port(connection)
                self._ports.append(port)
                selector.register(connection, selectors.EVENT_READ, port)

    def _receive(self, selector: selectors.BaseSelector, port: _Port) -> None:
        try:
            received = port.connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        port.incoming += received
        while len(port.incoming) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(port.incoming)
            if length > _FRAME_MAX:
                received = b""  # not what QEMU sends: the guest is disconnected
                break
            end = _HEADER.size + length
            if len(port.incoming) < end:
                break
            frame = bytes(port.incoming[:end])
            del port.incoming[:end]
            for other in self._ports:
                if other is not port and len(other.waiting) + end <= _WAITING_MAX:
                    other.waiting += frame
                    self._send(selector, other)
        if not received:
            self._disconnect(selector, port)

    def _send(self, selector: selectors.BaseSelector, port: _Port) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                while port.waiting:
                    del port.waiting[: port.connection.send(port.waiting)]
            except (BrokenPipeError, ConnectionResetError):
                port.waiting.clear()  # reading will find that it is gone
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if port.waiting else 0)
        selector.modify(port.connection, events, port)

    def _disconnect(self, selector: selectors.BaseSelector, port: _Port) -> None:
        selector.unregister(port.connection)
        port.connection.close()
        self._ports.remove(port)
