# SPDX-License-Identifier: GPL-2.0-only
"""The host's end of a guest's console: sends, waits for marks, and removes the kernel's messages from the input."""

from __future__ import annotations

import io
import os
import re
import select
import time
from typing import TYPE_CHECKING

import pexpect
from pexpect import fdpexpect

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestConnectionLost, GuestHang

if TYPE_CHECKING:
    _Spawn = fdpexpect.fdspawn[bytes]
else:
    _Spawn = fdpexpect.fdspawn  # no generic class when it runs

ANSWER_MAX = 8 << 20
"""Bytes among which an answer is looked for: one has 88 KiB, and other programs print as well."""

_READ_MAX = 1 << 16
_MESSAGE_MAX = 1 << 14
_MESSAGE = re.compile(rb"\[ *\d+\.\d{6}\][^\n]*\n")
_BEGUN_MESSAGE = re.compile(rb"\[ {0,7}(?:\d{1,8}(?:\.(?:\d{0,5}|\d{6}(?:\][^\n]*)?))?)?\Z")


class _Console(_Spawn):
    """A descriptor for pexpect, without the messages that the kernel puts into the middle of anything.

    Only those with a time stamp are recognised, and only by its looks. ``received`` counts the other bytes,
    ``unmatched`` those that are kept for a mark.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, maxread=_READ_MAX, use_poll=True)
        self.delaybeforesend = self.delayafterread = None
        self.received = self.unmatched = 0
        self._held = b""

    def read_nonblocking(self, size: int = 1, timeout: float | None = -1) -> bytes:
        """Wait for input that is no kernel message."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            text = self._without_messages(super().read_nonblocking(size, left))
            self.received += len(text)
            self.unmatched += len(text)
            if self.unmatched > ANSWER_MAX:
                raise pexpect.TIMEOUT("a flood")
            if text:
                return text
            if left == 0.0:  # a kernel that prints without end
                raise pexpect.TIMEOUT("kernel messages only")

    def forget(self) -> None:
        """Discard what was read and not matched yet."""
        self.buffer = b""
        self._before = io.BytesIO()
        self.unmatched = 0

    def _without_messages(self, data: bytes) -> bytes:
        text = self._held + data
        # No message ends behind the last line's end. To look for one there takes a time that grows with the square of
        # how often one seems to begin: 0.26 s for 64 KiB.
        lines = text.rfind(b"\n") + 1
        text = _MESSAGE.sub(b"", text[:lines]) + text[lines:]
        begun = _BEGUN_MESSAGE.search(text)
        end = begun.start() if begun is not None and len(text) - begun.start() < _MESSAGE_MAX else len(text)
        self._held = text[end:]
        return text[:end]


class SerialLine:
    """One console. Raises GuestConnectionLost when it is closed from the guest's side."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._console = _Console(descriptor)

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all of it. Raises GuestHang at the deadline."""
        if self._console.closed:
            raise GuestConnectionLost("the console was closed")
        rest = memoryview(data)
        poll = select.poll()
        poll.register(self._console.child_fd, select.POLLOUT)
        while rest:
            try:
                rest = rest[os.write(self._console.child_fd, rest) :]
            except BlockingIOError:
                if not poll.poll(deadline.pause() * 1000) and not deadline.left():
                    raise GuestHang("the guest's console takes nothing any more") from None
            except OSError as error:
                raise _lost(error) from None

    def forget(self) -> None:
        """Discard what was received so far."""
        self._console.forget()

    def until(self, mark: bytes, silence: float, deadline: Deadline) -> bytes:
        """The input before the mark. Raises GuestHang after ``silence`` seconds without input, and at the deadline."""
        received, quiet = self._console.received, Deadline(silence)
        while True:
            if self._expect(mark, min(quiet.pause(), deadline.pause())):
                return self._console.before or b""
            if self._console.unmatched > ANSWER_MAX:
                raise GuestHang(f"the guest's console has {ANSWER_MAX >> 20} MiB in place of an answer")
            if received < self._console.received:
                received, quiet = self._console.received, Deadline(silence)
            if not (quiet.left() and deadline.left()):
                raise GuestHang("the guest gave no answer in time")

    def read(self, patience: float) -> bytes:
        """The input so far, after at most ``patience`` seconds of waiting for any."""
        try:
            text = self._console.buffer or self._console.read_nonblocking(_READ_MAX, patience)
        except pexpect.TIMEOUT:
            return b""
        except (pexpect.EOF, OSError) as error:
            raise _lost(error) from None
        self.forget()
        return text

    def close(self) -> None:
        """Close the console."""
        self._console.close()

    def _expect(self, mark: bytes, timeout: float) -> bool:
        try:
            self._console.expect_exact([mark], timeout=timeout)
        except pexpect.TIMEOUT:
            return False
        except (pexpect.EOF, OSError) as error:
            raise _lost(error) from None
        return True


def _lost(error: Exception) -> GuestConnectionLost:
    why = error.strerror if isinstance(error, OSError) and error.strerror else "closed from the guest's side"
    return GuestConnectionLost(f"the console broke: {why}")
