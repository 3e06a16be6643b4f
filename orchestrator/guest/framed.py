# SPDX-License-Identifier: GPL-2.0-only
"""The command channel to the agent in the guest: frames on a virtio serial port of its own.

The frames are described at the top of ``images/guest/agent.c``. Nothing else uses this port, so nothing that a guest
prints can be mistaken for a reply.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestConnectionLost, GuestError, GuestHang, GuestRefusal
from orchestrator.guest.channel import (
    DIRECTORY,
    KILL_LIMIT,
    OUTPUT_MAX,
    CommandOutput,
    CommandResult,
    Listener,
    Stream,
    blocks,
    check_command,
    command_name,
    guest_path,
    killed_when_late,
)

DEATH_LIMIT = 3.0
"""Seconds that the agent has to kill a command; a guest that takes longer hangs."""

PROTOCOL = 1
PAYLOAD_MAX = 64 * 1024

_HEADER = struct.Struct("<III")
_WORD = struct.Struct("<I")


class FrameType(IntEnum):
    """The frame types of agent.c."""

    EXEC = 1
    KILL = 2
    PUT = 3
    GET = 4
    PING = 5
    DATA = 16
    HELLO = 32
    STDOUT = 33
    STDERR = 34
    EXIT = 35
    OK = 36
    ERROR = 37


class FramedChannel:
    """One connection to one agent; one command at a time, each while its guest is ``awake``."""

    def __init__(
        self, connection: socket.socket, awake: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self._socket, self._awake = connection, awake
        self._socket.settimeout(0)
        self._received = bytearray()
        self._request = 0
        self._torn = False

    def wait_for_agent(self, deadline: Deadline) -> None:
        """Wait for the agent's first frame. Raises GuestHang at the deadline."""
        kind, _, payload = self._frame(deadline)
        if kind != FrameType.HELLO or payload != _WORD.pack(PROTOCOL):
            raise GuestConnectionLost("what answers in the guest is not the lab's agent, or another version of it")

    def ping(self, time_limit: float) -> None:
        with self._awake():
            self.wait_for_answer(self.send_ping(), time_limit)

    def send_ping(self) -> int:
        """Send a ping and return the request's number. The agent may not be running yet."""
        return self._send(FrameType.PING, b"")

    def wait_for_answer(self, ping: int, time_limit: float) -> None:
        self._done(ping, Deadline(time_limit))

    def run(self, argv: Sequence[str], *, time_limit: float, listener: Listener | None = None) -> CommandResult:
        """Run a program found in /bin, /sbin or /usr; see ``Channel.run``."""
        check_command(argv)
        output = CommandOutput(listener)
        with self._awake():
            request = self._send(FrameType.EXEC, b"".join(os.fsencode(word) + b"\0" for word in (DIRECTORY, *argv)))
            with killed_when_late(command_name(argv), time_limit, output, lambda: self._kill(request)):
                status = self._collect(request, output, Deadline(time_limit))
        return output.result(argv, status)

    def stop(self) -> None:
        """Kill the command whose end another thread awaits; that thread sends nothing meanwhile."""
        self._send_frame(FrameType.KILL, self._request, b"", Deadline(KILL_LIMIT))

    def put(self, content: bytes | Path, target: str, *, mode: int, time_limit: float) -> None:
        deadline = Deadline(time_limit)
        request = self._next_request()
        head = _WORD.pack(mode) + guest_path(target) + b"\0"
        with self._awake(), contextlib.closing(blocks(content, PAYLOAD_MAX)) as rest:
            first = next(rest, None)  # reveals an unreadable host file before anything is sent
            whole = itertools.chain([first] if first else [], rest, [b""])
            frames = itertools.chain([(FrameType.PUT, head)], ((FrameType.DATA, block) for block in whole))
            self._send_whole((_HEADER.pack(len(data), kind, request) + data for kind, data in frames), deadline)
            self._done(request, deadline, f"cannot write {target}")

    def get(self, source: str, *, time_limit: float, largest: int = OUTPUT_MAX) -> bytes:
        deadline = Deadline(time_limit)
        with self._awake():
            request = self._send(FrameType.GET, guest_path(source) + b"\0", deadline)
            return self._done(request, deadline, f"cannot read {source}", largest)

    def close(self) -> None:
        """Close the connection; the agent then resets the machine, which ends QEMU."""
        self._socket.close()

    def _collect(self, request: int, output: CommandOutput, deadline: Deadline) -> int:
        while True:
            kind, payload = self._reply(request, deadline)
            if kind in (FrameType.STDOUT, FrameType.STDERR):
                output.add(Stream.STDOUT if kind == FrameType.STDOUT else Stream.STDERR, payload)
            elif kind == FrameType.EXIT:
                word = int.from_bytes(payload, "little")
                return 128 + (word & 0x7F) if word & 0x7F else word >> 8 & 0xFF
            else:
                raise _refusal("the guest cannot start the command", kind, payload)

    def _kill(self, request: int) -> None:
        deadline = Deadline(DEATH_LIMIT)
        self._send_frame(FrameType.KILL, request, b"", deadline)
        self._collect(request, CommandOutput(lambda stream, data: None), deadline)

    def _done(self, request: int, deadline: Deadline, failure: str = "the request failed", largest: int = 0) -> bytes:
        content = bytearray()
        is_too_large = False
        while True:
            kind, payload = self._reply(request, deadline)
            if kind == FrameType.DATA:
                if not is_too_large and len(content) + len(payload) > largest:
                    # The content may never end. Read and drop what is on its way, to find the next reply.
                    is_too_large = True
                    self._send_frame(FrameType.KILL, request, b"", deadline)
                if not is_too_large:
                    content += payload
            elif is_too_large:
                raise GuestRefusal(f"{failure}: it has more than {largest} bytes")
            elif kind != FrameType.OK:
                raise _refusal(failure, kind, payload)
            else:
                return bytes(content)

    def _reply(self, request: int, deadline: Deadline) -> tuple[int, bytes]:
        """The next frame of a request; late frames of earlier requests are discarded."""
        # Checked here too: if a guest never stops sending, _wait is never called.
        while deadline.left() > 0:
            kind, number, payload = self._frame(deadline)
            if number == request:
                return kind, payload
        raise GuestHang("the guest gave no answer in time")

    def _next_request(self) -> int:
        self._request = (self._request + 1) & 0xFFFFFFFF
        return self._request

    def _send(self, kind: FrameType, payload: bytes, deadline: Deadline | None = None) -> int:
        request = self._next_request()
        self._send_frame(kind, request, payload, deadline or Deadline(KILL_LIMIT))
        return request

    def _send_frame(self, kind: FrameType, request: int, payload: bytes, deadline: Deadline) -> None:
        self._send_whole([_HEADER.pack(len(payload), kind, request) + payload], deadline)

    def _send_whole(self, frames: Iterable[bytes], deadline: Deadline) -> None:
        """Send frames that the agent must receive as a whole."""
        if self._torn:
            raise GuestConnectionLost("an earlier request was cut off in the middle by its time limit")
        # If this ends early, the agent waits for the rest, and nothing else can follow.
        self._torn = True
        for frame in frames:
            data = memoryview(frame)
            while data:
                try:
                    data = data[self._socket.send(data) :]
                except BlockingIOError:
                    self._wait(deadline, select.POLLOUT)
                except OSError as error:
                    raise GuestConnectionLost(f"the command channel broke: {error.strerror}") from None
        self._torn = False

    def _frame(self, deadline: Deadline) -> tuple[int, int, bytes]:
        self._receive(_HEADER.size, deadline)
        length, kind, request = _HEADER.unpack_from(self._received)
        if length > PAYLOAD_MAX:
            raise GuestConnectionLost("the guest sent a frame that is too long")
        end = _HEADER.size + length
        # Frames leave the buffer only when complete, as a time limit may end in the middle of one.
        self._receive(end, deadline)
        payload = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        return kind, request, payload

    def _receive(self, size: int, deadline: Deadline) -> None:
        while len(self._received) < size:
            try:
                data = self._socket.recv(1 << 18)
            except BlockingIOError:
                self._wait(deadline, select.POLLIN)
                continue
            except OSError as error:
                raise GuestConnectionLost(f"the command channel broke: {error.strerror}") from None
            if not data:
                raise GuestConnectionLost("the command channel was closed from the guest's side")
            self._received += data

    def _wait(self, deadline: Deadline, event: int) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        while not poll.poll(deadline.pause() * 1000):
            if not deadline.left():
                raise GuestHang("the guest gave no answer in time")


def _refusal(failure: str, kind: int, payload: bytes) -> GuestError:
    """The error for a reply that is none of those wanted."""
    if kind != FrameType.ERROR or len(payload) != _WORD.size:
        return GuestError(f"{failure}: unexpected reply {kind}")
    return GuestRefusal(f"{failure}: {os.strerror(int.from_bytes(payload, 'little', signed=True)).lower()}")
