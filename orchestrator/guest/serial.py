# SPDX-License-Identifier: GPL-2.0-only
"""The channel over a guest's console, for guests with neither the lab's agent nor sshd.

On a console, messages of the kernel and of other programs interrupt any output. So only data with a valid checksum is
used: a script (``images/guest/serial-serve.sh``) keeps a command's output until the host has received all of it, and
every request can be repeated.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import hashlib
import os
import re
import secrets
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import CommandTimeout, GuestConnectionLost, GuestError, GuestHang, GuestRefusal
from orchestrator.guest.channel import (
    KILL_LIMIT,
    OUTPUT_MAX,
    CommandOutput,
    CommandResult,
    Listener,
    Stream,
    TooMuchOutput,
    blocks,
    check_command,
    complaint,
    guest_path,
    killed_when_late,
)
from orchestrator.guest.console import plain_lines
from orchestrator.guest.guest_scripts import lab_script
from orchestrator.guest.marked_output import MarkedCommand

ANSWER_MAX = 8 << 20
"""Bytes to search for an answer, which has 88 KiB; other programs print as well."""

_READ_MAX = 1 << 16
_MESSAGE_MAX = 1 << 14
_MESSAGE = re.compile(rb"\[ *\d+\.\d{6}\][^\n]*\n")
_BEGUN_MESSAGE = re.compile(rb"\[ {0,7}(?:\d{1,8}(?:\.(?:\d{0,5}|\d{6}(?:\][^\n]*)?))?)?\Z")


class SerialLine:
    """One console, without the kernel messages that interrupt its output.

    Only messages with a time stamp are recognised, and only by their form. Raises GuestConnectionLost if closed from
    the guest's side.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._received = bytearray()
        self._held = b""  # a possible start of a message

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all data. Raises GuestHang at the deadline."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._open(), rest) :]
            except BlockingIOError:
                if not self._wait(select.POLLOUT, deadline.pause()) and not deadline.left():
                    raise GuestHang("the guest's console accepts no more input") from None
            except OSError as error:
                raise _lost(error) from None

    def forget(self) -> None:
        self._received.clear()

    def until(self, mark: bytes, silence: float, deadline: Deadline) -> bytes:
        """The input before the mark. Raises GuestHang after ``silence`` seconds without input, and at the deadline."""
        quiet, searched = Deadline(silence), 0
        while True:
            place = self._received.find(mark, searched)
            if place >= 0:
                before = bytes(self._received[:place])
                del self._received[: place + len(mark)]
                return before
            length = len(self._received)
            if length > ANSWER_MAX:
                raise GuestHang(f"the guest's console has {ANSWER_MAX >> 20} MiB instead of an answer")
            searched = max(0, length - len(mark) + 1)
            self._receive(min(quiet.pause(), deadline.pause()))
            if len(self._received) > length:
                quiet = Deadline(silence)
            if not (quiet.left() and deadline.left()):
                raise GuestHang("the guest gave no answer in time")

    def read(self, patience: float) -> bytes:
        """The input so far, after waiting at most ``patience`` seconds for any."""
        end = time.monotonic() + patience
        left = patience
        while not self._received and left >= 0:  # a kernel may print endlessly
            self._receive(left)
            left = end - time.monotonic()
        text = bytes(self._received)
        self.forget()
        return text

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _open(self) -> int:
        if self._descriptor < 0:
            raise GuestConnectionLost("the console was closed")
        return self._descriptor

    def _wait(self, event: int, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._open(), event)
        return bool(poll.poll(seconds * 1000))

    def _receive(self, patience: float) -> None:
        """Append the input that is available or arrives in time, without kernel messages."""
        if not self._wait(select.POLLIN, patience):
            return
        try:
            data = os.read(self._descriptor, _READ_MAX)
        except BlockingIOError:
            return
        except OSError as error:
            raise _lost(error) from None
        if not data:
            raise _lost(None)
        text = self._held + data
        # No message ends after the last newline. A search there takes time that is quadratic in the number of apparent
        # beginnings: 0.26 s for 64 KiB.
        lines = text.rfind(b"\n") + 1
        text = _MESSAGE.sub(b"", text[:lines]) + text[lines:]
        begun = _BEGUN_MESSAGE.search(text)
        end = begun.start() if begun is not None and len(text) - begun.start() < _MESSAGE_MAX else len(text)
        self._held = text[end:]
        self._received += text[:end]


def _lost(error: OSError | None) -> GuestConnectionLost:
    # A pseudo-terminal reports EIO while its other end is closed.
    why = "closed from the guest's side"
    if error is not None and error.errno != errno.EIO:
        why = error.strerror or why
    return GuestConnectionLost(f"the console broke: {why}")


# Logging in on a console in any state: answer a login prompt, or recognise a running shell.

_NUDGE_INTERVAL = 3.0
"""Seconds without a prompt until a newline requests one: the first may have been printed before the channel opened, or
be lost among kernel messages. Multiplied by the number of names sent: a guest that hardly gets a processor has not
answered the first newline when the next one comes, and asks for a login again after each."""
_ATTEMPTS = 6
"""How often the user's name is sent: a kernel message may corrupt one, and a shell that ends at once brings the prompt
back."""
_QUIET = 0.3
"""Seconds without output after a prompt."""
_SCREEN_MAX = 1 << 14
_CONTROL = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b(?:\[[0-9;?]*[ -/]*)?[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


_LOGIN = re.compile(rb"(?mi)^.*\blogin: *$")
_CHALLENGE = re.compile(rb"(?mi)^.*\bpassword(?: for .*)?: *$")
_SHELL = re.compile(rb"(?m)^.*[#$%>] *$")
_REFUSAL = re.compile(rb"(?mi)\b(?:login incorrect|authentication failure|permission denied)\b")


def log_in(line: SerialLine, user: str, password: str | None, deadline: Deadline) -> None:
    """Return when the console shows a shell's prompt.

    Raises GuestError if the guest wants a password that is not given, or refuses the given one; GuestHang, quoting the
    console, at the deadline.
    """
    named = answered = False
    attempts = 0
    screen = b""
    nudged = 0.0
    while deadline.left():
        text = line.read(min(_QUIET, deadline.left()))
        screen = (screen + text)[-_SCREEN_MAX:]
        shown = _CONTROL.sub(b"", screen)
        sight = None if text else _last_sight(shown)
        if sight is _SHELL:
            return
        if answered and _REFUSAL.search(shown):
            raise GuestError(f"the guest's console refuses {user} with this password")
        if sight is _LOGIN:
            attempts += 1
            if attempts > _ATTEMPTS:
                hint = "check that the user has a shell there, and may log in"
                raise GuestError(f"the guest's console asks for a login again after {user}", hint=hint)
            answer, named, answered = user, True, False
        elif sight is _CHALLENGE and named:
            if password is None:
                hint = "exec takes it from a file (--password-file); or let the image ask for none"
                raise GuestError(f"the guest's console wants a password for {user}", hint=hint)
            answer, named, answered = password, False, True
        elif time.monotonic() - nudged > _NUDGE_INTERVAL * (1 + attempts):
            answer = ""
        else:
            continue
        line.send(answer.encode("utf-8", "surrogateescape") + b"\n", deadline)
        nudged = time.monotonic()
        screen = b""
    raise GuestHang(
        "the guest's console shows neither a login prompt nor a shell",
        detail=plain_lines(screen)[-10:],
        hint="check that the image has a login on ttyS0 (a getty)",
    )


def _last_sight(shown: bytes) -> re.Pattern[bytes] | None:
    """The pattern of the prompt at the end of the console's output, or None."""
    ends = {pattern: [match.end() for match in pattern.finditer(shown)] for pattern in (_LOGIN, _CHALLENGE, _SHELL)}
    last = max(ends, key=lambda end: max(ends[end], default=-1))
    return last if ends[last] else None


_BLOCK = 32 * 1024
"""Bytes sent at once: in base64 they must fit into the guest kernel's console input buffer, 64 KiB."""
_PIECE_KIB = (64, 8, 1)
"""KiB requested at once: first as much as the guest sends, then less after damage."""
_FILE_MAX = 1 << 20
"""Bytes of one of the lab's files in the guest, which have at most 64 KiB."""
_FIRST_SILENCE = 2.0
_LEAVING_LIMIT = 1.0
_LONGEST_REPLY = 60.0
_SLOWEST = 5000.0
"""Bytes a second that a console carries even on the busiest host."""
_POLL_FIRST, _POLL_LAST = 0.005, 0.1
_BASE64_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True)
class _Reply:
    """A reply's words, and the bytes that came with it: None if there are none, or they are damaged."""

    words: list[list[str]]
    content: bytes | None


class SerialChannel:
    """A channel that takes over one console; one request at a time. See ``Channel`` for the methods."""

    def __init__(self, connection: socket.socket | int) -> None:
        self._line = SerialLine(connection if isinstance(connection, int) else connection.detach())
        self._token = secrets.token_hex(8)
        self._number = 0

    def login(self, user: str, password: str | None, deadline: Deadline) -> None:
        """Log in, or use a running shell, and start the serving script in it.

        Raises GuestError if the guest refuses, or lacks the programs needed; GuestHang at the deadline.
        """
        log_in(self._line, user, password, deadline)
        serve = base64.b64encode(lab_script("serial-serve.sh"))
        begin = b" ".join(line.strip() for line in lab_script("serial-begin.sh").splitlines() if line[:1] != b"#")
        half = len(self._token) // 2
        words = f" set -- {len(serve)} {self._token[:half]} {self._token[half:]}; ".encode()
        self._line.send(words + begin + b"\n", deadline)
        reply = self._parsed(self._line.until(self._mark(), max(0.1, deadline.left()), deadline))
        if reply is not None and reply.words[-1][0] == "lacks":
            raise GuestError(
                f"the guest lacks {', '.join(reply.words[-1][1:])}, which a channel over its console needs"
            )
        self._line.send(serve, deadline)
        self._upload("pump", lab_script("serial-pump.sh"), deadline)

    def run(self, argv: Sequence[str], *, time_limit: float, listener: Listener | None = None) -> CommandResult:
        """Run a program found in the shell's PATH; see ``Channel.run``."""
        check_command(argv)
        command = MarkedCommand(argv, CommandOutput(listener))
        beginning = Deadline(KILL_LIMIT + len(command.script) / _SLOWEST)
        self._ask("finish", beginning)  # an earlier request that was broken off
        self._upload("script", command.script, beginning)
        self._ask("start", beginning)
        with killed_when_late(argv[0], time_limit, command.output, lambda: self._ask("stop", Deadline(KILL_LIMIT))):
            self._collect(command, Deadline(time_limit))
        self._ask("finish", Deadline(KILL_LIMIT))
        return command.result()

    def put(self, content: bytes | Path, target: str, *, mode: int, time_limit: float) -> None:
        path, deadline = guest_path(target), Deadline(time_limit)
        with contextlib.closing(blocks(content, _BLOCK)) as rest:
            block = next(rest, b"")  # reveals an unreadable host file before anything is sent
            self._upload("path", path, deadline)
            sent = self._ask(f"open {mode:o}", deadline).words[-1][0] == "done"
            index = 0
            while sent and block:
                sent = self._add(index, block, deadline)
                index, block = index + 1, next(rest, b"")
        if not sent:
            raise GuestRefusal(f"cannot write {target}: {complaint(self._fetch('why', deadline))}")

    def get(self, source: str, *, time_limit: float, largest: int = OUTPUT_MAX) -> bytes:
        guest_path(source)
        content, errors = bytearray(), bytearray()

        def listener(stream: Stream, data: bytes) -> None:
            buffer = content if stream is Stream.STDOUT else errors
            buffer += data
            if len(content) > largest:
                raise TooMuchOutput(f"cannot read {source}: it has more than {largest} bytes")

        try:
            result = self.run(["env", "LC_ALL=C", "cat", source], time_limit=time_limit, listener=listener)
        except CommandTimeout:
            raise GuestHang("the guest gave no answer in time") from None
        if result.status != 0:
            raise GuestRefusal(f"cannot read {source}: {complaint(bytes(errors))}")
        return bytes(content)

    def close(self) -> None:
        """Restore the console's settings if possible, and close it."""
        with contextlib.suppress(GuestError):
            self._ask("leave", Deadline(_LEAVING_LIMIT))
        self._line.close()

    def _collect(self, command: MarkedCommand, deadline: Deadline) -> None:
        taken = dict.fromkeys(Stream, 0)
        pause = _POLL_FIRST
        while not command.ended:
            if not deadline.left():
                raise GuestHang("the guest gave no answer in time")
            reply = self._ask(f"next {taken[Stream.STDOUT]} {taken[Stream.STDERR]}", deadline)
            word = reply.words[0][0]
            if word == "over":
                return
            if word not in set(Stream):  # no output yet, or the stream's name was damaged
                time.sleep(min(pause, deadline.left()))
                pause = min(_POLL_LAST, 2 * pause)
                continue
            stream = Stream(word)
            content = reply.content
            if content is None:
                content = self._fetch(f"{'out' if stream is Stream.STDOUT else 'err'}.{taken[stream]}", deadline, 1)
            command.feed(stream, content)
            taken[stream] += 1
            pause = _POLL_FIRST

    def _upload(self, name: str, content: bytes, deadline: Deadline) -> None:
        self._ask(f"begin {name}", deadline)
        for index, block in enumerate(blocks(content, _BLOCK)):
            if not self._add(index, block, deadline):
                raise GuestError("the guest has no room for the files of a channel over its console")

    def _add(self, index: int, block: bytes, deadline: Deadline) -> bool:
        data = base64.b64encode(block)
        word = "damaged"
        while word == "damaged":
            word = self._ask(f"add {index} {len(data)} {_checksum(block)}", deadline, data).words[-1][0]
        return word == "done"

    def _fetch(self, name: str, deadline: Deadline, size: int = 0) -> bytes:
        """A file of the lab's in the guest, in pieces with valid checksums; ``size`` indexes the first piece's KiB."""
        content = bytearray()
        while True:
            kib = _PIECE_KIB[size]
            piece = self._ask(f"piece {name} {len(content) // 1024} {kib}", deadline).content
            if piece is None or len(piece) > kib * 1024:
                size = min(size + 1, len(_PIECE_KIB) - 1)
                continue
            content += piece
            if len(content) > _FILE_MAX:
                raise GuestConnectionLost(
                    "what answers on the guest's console is not the lab's script: a file has no end"
                )
            if len(piece) < kib * 1024:
                return bytes(content)

    def _ask(self, request: str, deadline: Deadline, data: bytes = b"") -> _Reply:
        """Repeat a request until it is answered. Raises GuestHang at the deadline."""
        patience = _FIRST_SILENCE + len(data) / _SLOWEST  # the guest prints nothing while it receives data
        silence = patience
        while True:
            if not deadline.left():  # a guest could answer in advance, as the numbers are consecutive
                raise GuestHang("the guest gave no answer in time")
            self._number += 1
            self._line.forget()
            # The empty line ends leftovers of an earlier attempt.
            self._line.send(f"\n{self._number} {request}\n".encode() + data, deadline)
            try:
                text = self._line.until(self._mark(), silence, Deadline(min(deadline.left(), _LONGEST_REPLY)))
            except GuestHang:
                if not deadline.left():
                    raise
                # The guest may still wait for bytes that were lost, or for something that never ends.
                self._line.send(b"\n" * len(data) if silence == patience else b"\x03", deadline)
                silence *= 2
                continue
            reply = self._parsed(text)
            if reply is not None:
                return reply

    def _mark(self) -> bytes:
        return f"<{self._token} {self._number} end>".encode()

    def _parsed(self, text: bytes) -> _Reply | None:
        head = rf"<{self._token} {self._number} ([\w./-]+(?: [\w./-]+)*)>\r?\n"
        heads = list(re.finditer(head.encode(), text))
        if not heads:
            return None
        words = [head[1].decode().split() for head in heads]
        is_entry = len(words[-1]) == 2 and words[-1][0] == "piece"
        content = _decoded(text[heads[-1].end() :], words[-1][1]) if is_entry else None
        return _Reply(words, content)


def _checksum(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _decoded(text: bytes, checksum: str) -> bytes | None:
    """The bytes of a piece, among foreign lines; None if the checksum differs."""
    lines = (line.strip() for line in text.split(b"\n"))
    encoded = b"".join(line for line in lines if _BASE64_LINE.fullmatch(line))
    try:
        content = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return None
    return content if _checksum(content) == checksum else None
