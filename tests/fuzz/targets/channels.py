# SPDX-License-Identifier: GPL-2.0-only
"""The bytes that come through a channel from whatever answers in the guest."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from unittest.mock import patch

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestConnectionLost
from orchestrator.guest.channel import CommandOutput, Stream
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.marked_output import MarkedCommand
from orchestrator.guest.serial import SerialChannel, SerialLine, log_in

_LIMIT = 60.0
"""Seconds of the host's time for an answer. None of them is waited for: behind an input its end is closed."""

TOKEN = "0123456789abcdef" * 2
"""What marks are made of here; a guest gets to know it in the command."""


@contextlib.contextmanager
def _received(data: bytes) -> Iterator[socket.socket]:
    """Our end of a connection at whose other end all has been sent."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        yield ours


def read_frames(data: bytes) -> None:
    """Frames of the agent's; the first byte decides what it was asked for."""
    with _received(data[1:]) as connection:
        channel = FramedChannel(connection)
        requests: tuple[Callable[[], object], ...] = (
            lambda: channel.wait_for_agent(Deadline(_LIMIT)),
            lambda: channel.run(["true"], time_limit=_LIMIT),
            lambda: channel.get("/proc/version", time_limit=_LIMIT, largest=1000),
            lambda: channel.put(b"1", "/tmp/one", mode=0o644, time_limit=_LIMIT),
            lambda: channel.ping(_LIMIT),
        )
        requests[data[0] % len(requests) if data else 0]()


def read_serial_line(data: bytes) -> None:
    """A console on which the kernel's messages stand among what is waited for."""
    with _received(data) as connection:
        line = SerialLine(connection.detach())
        try:
            while True:
                line.until(b"<mark>", _LIMIT, Deadline(_LIMIT))
        finally:
            line.close()


class _Pieces(SerialLine):
    """A console that shows an input piece by piece: a NUL divides them, and is a moment in which nothing comes."""

    def __init__(self, data: bytes) -> None:
        self._pieces = data.split(b"\0")

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Nobody reads it."""

    def forget(self) -> None:
        """What comes next is not there yet."""

    def until(self, mark: bytes, silence: float, deadline: Deadline) -> bytes:
        """The next piece that is not empty, as if it ended with the mark."""
        while not (piece := self.read(silence)):
            pass
        return piece

    def read(self, patience: float) -> bytes:
        """The next piece, and each time between two of them nothing."""
        if not self._pieces:
            raise GuestConnectionLost("the input has ended")
        piece = self._pieces.pop(0)
        if piece:
            self._pieces.insert(0, b"")
        return piece

    def close(self) -> None:
        """There is nothing to close."""


def read_login(data: bytes) -> None:
    """What a console shows until there is a shell."""
    log_in(_Pieces(data), "root", "secret", Deadline(_LIMIT))


def read_serial_replies(data: bytes) -> None:
    """Replies of the script at a console's other end; the first byte decides what it was asked for."""
    ours, theirs = socket.socketpair()
    with theirs, patch.object(secrets, "token_hex", _token), patch.object(time, "sleep", _at_once):
        channel = SerialChannel(ours)
        channel._line.close()
        channel._line = _Pieces(data[1:])
        requests: tuple[Callable[[], object], ...] = (
            lambda: channel.run(["true"], time_limit=_LIMIT),
            lambda: channel.get("/proc/version", time_limit=_LIMIT, largest=1000),
            lambda: channel.put(b"1", "/tmp/one", mode=0o644, time_limit=_LIMIT),
        )
        requests[data[0] % len(requests) if data else 0]()


def read_marked_output(data: bytes) -> None:
    """A command's output between marks; a NUL begins what comes next, on the other stream."""
    with patch.object(secrets, "token_hex", _token):
        command = MarkedCommand(["true"], CommandOutput())
    for number, piece in enumerate(data.split(b"\0")):
        command.feed((Stream.STDOUT, Stream.STDERR)[number % 2], piece)
    assert command.status is not None or not command.ended


def _token(size: int) -> str:
    return TOKEN[: 2 * size]


def _at_once(_seconds: float) -> None:
    pass
