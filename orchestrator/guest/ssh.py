# SPDX-License-Identifier: GPL-2.0-only
"""The channel to a guest's own sshd, for guests with a distribution on a disk: commands and SFTP, as root.

A command is a script on a shell's standard input (see ``MarkedCommand``), so it may be as long as on any channel. A
command that must end early is killed through a second session.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import paramiko
from paramiko.common import MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA
from paramiko.packet import Packetizer
from paramiko.sftp import CMD_ATTRS, CMD_HANDLE

from orchestrator.deadline import Deadline
from orchestrator.errors import CommandTimeout, GuestConnectionLost, GuestError, GuestHang, GuestRefusal
from orchestrator.guest.channel import (
    KILL_LIMIT,
    OUTPUT_MAX,
    CommandOutput,
    CommandResult,
    Listener,
    Stream,
    blocks,
    check_command,
    complaint,
    guest_path,
    killed_when_late,
)
from orchestrator.guest.guest_scripts import guest_script
from orchestrator.guest.marked_output import MarkedCommand
from orchestrator.plain_text import cut, plain_line

# Bounds for what a guest's sshd and SFTP server announce or send unasked.
#
# paramiko 5.1 reads as many bytes as a packet announces, up to 4 GiB and before login, keeps whatever a session sends
# beyond its window, and reads as many attributes of a file as a count says. An honest server stays far below these
# limits.

_PACKET_MAX = 256 << 10
"""Bytes of an SSH packet; OpenSSH accepts and sends no larger ones (PACKET_MAX_SIZE of packet.c)."""

_GREETING_MAX = 64 << 10
"""Bytes up to the end of the protocol's version line, which has 255 (RFC 4253, section 4.2)."""

_FILES_PACKET_MAX = 64 << 10
"""Bytes of an SFTP reply: the lab reads 32 KiB at a time, and no lists."""

_HANDLE_MAX = 256
"""Bytes of a file handle (draft-ietf-secsh-filexfer-02, section 6.3)."""

_EXTENDED = 1 << 31
"""Flag of attributes followed by a count of extended ones (section 5 there); OpenSSH's server sends none."""

_WORD = struct.Struct(">I")


class BoundedPacketizer(Packetizer):
    """Rejects packets larger than an sshd's."""

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self._greeted = 0

    def read_all(self, n: int, *options: Any, **named: Any) -> bytes:
        if n > _PACKET_MAX:
            raise paramiko.SSHException(f"it announces a packet of {n} bytes")
        content: bytes = super().read_all(n, *options, **named)
        return content

    def _read_timeout(self, timeout: float) -> bytes:
        content: bytes = super()._read_timeout(timeout)  # type: ignore[misc]  # private to paramiko, which has no stub for it
        self._greeted += len(content)
        if self._greeted > _GREETING_MAX:
            raise paramiko.SSHException("it does not come to its protocol's version")
        return content


class BoundedTransport(paramiko.Transport):
    """A connection that enforces each session's window, and prefers algorithms that are cheap to emulate."""

    def __init__(self, ciphers: Sequence[str], sock: Any, /, **options: Any) -> None:
        super().__init__(sock, packetizer_class=BoundedPacketizer, **options)
        security = self.get_security_options()
        security.ciphers = _first(ciphers, security.ciphers)
        security.digests = _first(_MACS, security.digests)

    _channel_handler_table: ClassVar[Any] = {
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_DATA: lambda session, message: _feed(session, session._feed, message),
        MSG_CHANNEL_EXTENDED_DATA: lambda session, message: _feed(session, session._feed_extended, message),
    }


class BoundedFiles(paramiko.SFTPClient):
    """An SFTP client that trusts no length and no count."""

    def _read_packet(self) -> tuple[int, bytes]:
        """The type of the next reply, and its content. Raises SFTPError for what no honest server sends."""
        (size,) = _WORD.unpack(self._read_all(_WORD.size))  # type: ignore[attr-defined]
        if not _WORD.size < size <= _FILES_PACKET_MAX:  # the type, and the request's number or the version
            raise paramiko.SFTPError(f"it announces {size} bytes")
        content: bytes = self._read_all(size)  # type: ignore[attr-defined]
        kind, words = content[0], content[1:]
        # The request's number is followed by a handle's length, or the flags of attributes.
        second = _WORD.unpack_from(words, _WORD.size)[0] if len(words) >= 2 * _WORD.size else 0
        if kind == CMD_HANDLE and second > _HANDLE_MAX:
            raise paramiko.SFTPError(f"it has a handle of {second} bytes")
        if kind == CMD_ATTRS and second & _EXTENDED:
            raise paramiko.SFTPError("it counts attributes that were not asked for")
        return kind, words


def _feed(session: paramiko.Channel, feed: Any, message: paramiko.Message) -> None:
    """Keep what a session sends, unless it exceeds the window."""
    if len(session.in_buffer) + len(session.in_stderr_buffer) > session.in_window_size:
        raise paramiko.SSHException("a session sends more than its window")
    feed(message)


HOST = "127.0.0.1"
USER = "root"

_FIRST_PATIENCE = 3.0
"""Seconds for the first attempt to connect: packets are lost until the guest has a network."""
_RETRY_INTERVAL = 0.1
_SEVERING_DELAY = 2.0
"""Seconds after the deadline for a request to be abandoned, before the whole connection is severed."""
_LONGEST_WAIT = 1e6
"""Seconds, for calls of paramiko that the lab ends at the deadline; paramiko's default is an hour."""
_NOTICING_LIMIT = 1.0
"""Seconds for paramiko's thread to notice that something broke."""

_QUOTED = 200
"""Limit of quoted characters."""

_WITH_TABLES, _WITH_VECTORS = ("aes128-cbc", "aes128-ctr"), ("aes128-ctr", "aes128-cbc")
_MACS = ("hmac-sha1", "hmac-sha2-256")
"""The cheapest for an emulated CPU first, with SSSE3 and without. The packets never leave the host."""

_FAILURES = (paramiko.SSHException, paramiko.SFTPError, EOFError, OSError, ValueError)

# Its log repeats, with tracebacks, what is raised anyway.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


def _act_when_late(
    deadline: Deadline, ended: threading.Event, at_first: Callable[[], None], at_last: Callable[[], None]
) -> None:
    """Do ``at_first`` at a deadline, and ``at_last`` some seconds later, unless all has ``ended`` by then.

    One thread serves both: if two asked one deadline at the same moment, each would add the time waited for a
    processor. On a busy host that comes up to sixty times as late.
    """
    while deadline.left():
        if ended.wait(deadline.pause()):
            return
    if ended.is_set():
        return
    threading.Thread(target=at_first, daemon=True).start()  # it may block
    if not ended.wait(_SEVERING_DELAY):
        at_last()


def _close(session: paramiko.Channel) -> None:
    with contextlib.suppress(*_FAILURES):
        session.close()


def _connected(
    port: int, host_key: paramiko.PKey, client_key: paramiko.PKey, patience: float, *, ssse3: bool
) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    client.get_host_keys().add(f"[{HOST}]:{port}", host_key.get_name(), host_key)
    began = time.monotonic()
    try:
        client.connect(
            HOST,
            port,
            USER,
            pkey=client_key,
            timeout=patience,
            banner_timeout=patience,
            auth_timeout=patience,
            allow_agent=False,
            look_for_keys=False,
            transport_factory=partial(BoundedTransport, _WITH_VECTORS if ssse3 else _WITH_TABLES),
        )
        return client
    except paramiko.BadHostKeyException as error:
        client.close()
        raise GuestError(
            f"the server on port {port} is not the guest: its host key is {error.key.fingerprint}, and the guest's is "
            f"{error.expected_key.fingerprint}"
        ) from None
    except paramiko.AuthenticationException as error:
        # A connection that is lost or too slow is reported as this exception, too.
        transport = client.get_transport()
        refused = transport is not None and transport.is_active() and time.monotonic() - began < patience
        client.close()
        if not refused:
            raise
        raise GuestError(f"the guest's sshd refuses the lab's key for {USER} ({_said(error)})") from None
    except _FAILURES:
        client.close()
        raise


def _first(preferred: Sequence[str], offered: Sequence[str]) -> list[str]:
    """The wanted algorithms that paramiko has, then its others: a later release may drop weak ones."""
    return [*(name for name in preferred if name in offered), *(name for name in offered if name not in preferred)]


def _said(problem: object) -> str:
    """A sentence's part from a paramiko error, which may quote the guest's sshd."""
    return cut(plain_line(str(problem) or type(problem).__name__), _QUOTED)


def _silence() -> GuestHang:
    return GuestHang("the guest gave no answer in time")


_SHELL = "exec /bin/sh"
_READ_SIZE = 1 << 18
_BLOCK = paramiko.SFTPFile.MAX_REQUEST_SIZE
_UNANSWERED = 8
"""Blocks in flight: on each arrival sshd moves all data that waits for its disk."""


class SshChannel:
    """One connection to one guest's sshd; one request at a time. See ``Channel`` for the methods."""

    def __init__(self, client: paramiko.SSHClient) -> None:
        transport = client.get_transport()
        assert transport is not None
        self._client, self._transport = client, transport

    @classmethod
    def connect(
        cls, port: int, host_key: paramiko.PKey, client_key: paramiko.PKey, deadline: Deadline, *, ssse3: bool = False
    ) -> Self:
        """Connect to the loopback port that leads to the guest's sshd, as soon as it answers.

        ``ssse3``: whether the guest's CPU has SSSE3, with which OpenSSL computes AES fast in another mode. Raises
        GuestError if the server has another host key or refuses the lab's key, GuestHang at the deadline.
        """
        patience = _FIRST_PATIENCE
        problem: Exception | None = None
        while (left := deadline.left()) > 0:
            began = time.monotonic()
            try:
                return cls(_connected(port, host_key, client_key, min(left, patience), ssse3=ssse3))
            except _FAILURES as error:
                problem = error
            time.sleep(_RETRY_INTERVAL)
            # Give an attempt that was merely too slow, on a busy host, more time next.
            if time.monotonic() - began >= patience:
                patience *= 2
        raise GuestHang(f"the guest's sshd does not answer ({'no time left' if problem is None else _said(problem)})")

    def run(self, argv: Sequence[str], *, time_limit: float, listener: Listener | None = None) -> CommandResult:
        """Run a program found in the PATH of the guest's sshd; see ``Channel.run``."""
        check_command(argv)
        command = MarkedCommand(argv, CommandOutput(listener))
        with (
            self._started(command.script, Deadline(KILL_LIMIT)) as session,
            killed_when_late(argv[0], time_limit, command.output, lambda: self._kill(session, command)),
        ):
            self._collect(session, command, Deadline(time_limit), lambda: command.ended)
        return command.result()

    def put(self, content: bytes | Path, target: str, *, mode: int, time_limit: float) -> None:
        path, deadline = guest_path(target), Deadline(time_limit)
        probe = ["dd", "if=/dev/zero", f"of={target}", "bs=1", "count=1", "conv=notrunc", "oflag=append", "status=none"]
        with contextlib.closing(blocks(content, _BLOCK)) as rest:
            block = next(rest, b"")  # reveals an unreadable host file before anything is sent
            with self._files(deadline, f"cannot write {target}", probe) as (files, step):
                with step():
                    file = files.open(path, "wb")
                    with contextlib.suppress(OSError):  # files of procfs and sysfs keep their mode
                        file.chmod(mode)
                number = 0
                while block:
                    following, number = next(rest, b""), number + 1
                    # A block that is not pipelined waits for the answers to all before it; closing the file would not.
                    file.set_pipelined(bool(following) and number % _UNANSWERED != 0)
                    with step():
                        file.write(block)
                    block = following
                with step():
                    file.close()

    def get(self, source: str, *, time_limit: float, largest: int = OUTPUT_MAX) -> bytes:
        path, deadline = guest_path(source), Deadline(time_limit)
        content = bytearray()
        probe = ["dd", f"if={source}", "of=/dev/null", "bs=1", "count=1", "status=none"]
        with self._files(deadline, f"cannot read {source}", probe) as (files, step):
            with step():
                file = files.open(path, "rb")
                size = file.stat().st_size or 0
            if size <= largest:
                with step():
                    file.prefetch(size)
                block = b"."
                # Many files of procfs and sysfs report a size of 0 or a page, whatever they contain.
                while block and size <= largest:
                    with step():
                        block = file.read(_BLOCK)
                    content += block
                    size = max(size, len(content))
        if size > largest:
            raise GuestRefusal(f"cannot read {source}: it has more than {largest} bytes")
        return bytes(content)

    def close(self) -> None:
        self._client.close()

    @contextlib.contextmanager
    def _session(self, deadline: Deadline) -> Iterator[paramiko.Channel]:
        """A new session, closed at the end. Raises GuestHang if it is not open at the deadline."""
        with self._bounded(deadline):
            session = self._transport.open_session(timeout=_LONGEST_WAIT)
        try:
            yield session
        finally:
            _close(session)

    @contextlib.contextmanager
    def _bounded(self, deadline: Deadline, session: paramiko.Channel | None = None) -> Iterator[None]:
        """End any wait in the context at the deadline, with GuestHang. Raises GuestConnectionLost if it broke.

        A plain OSError passes through: it is a refusal of the guest's SFTP server.
        """
        # Some of paramiko's calls wait without a limit. Closing the session ends them, or closing the connection if the
        # message that closes the session cannot be sent.
        abandoned, ended = threading.Event(), threading.Event()

        def abandon() -> None:
            if session is not None:
                abandoned.set()
                _close(session)

        def sever() -> None:
            abandoned.set()
            self._transport.close()

        threading.Thread(target=_act_when_late, args=(deadline, ended, abandon, sever), daemon=True).start()
        try:
            with self._watched(deadline, session, abandoned):
                yield
        finally:
            ended.set()

    @contextlib.contextmanager
    def _watched(
        self, deadline: Deadline, session: paramiko.Channel | None = None, abandoned: threading.Event | None = None
    ) -> Iterator[None]:
        """Converts what paramiko raises in the context into the lab's errors, except a plain OSError."""
        try:
            yield
        except TimeoutError:
            raise _silence() from None
        except _FAILURES as error:
            if abandoned is not None and abandoned.is_set():
                raise _silence() from None
            is_sound = self._transport.is_active() and (session is None or not session.closed)
            if isinstance(error, OSError) and is_sound:
                raise
            raise self._broken(error, deadline) from None

    def _broken(self, error: Exception, deadline: Deadline) -> GuestError:
        if isinstance(error, paramiko.ChannelException):
            return GuestError(f"the guest's sshd opens no session ({_said(error.text).lower()})")
        if isinstance(error, paramiko.SFTPError):
            return GuestConnectionLost(f"the guest's SFTP server sends invalid replies: {_said(error)}")
        if deadline.left():
            self._transport.join(_NOTICING_LIMIT)
        elif self._transport.is_active():
            return _silence()
        return GuestConnectionLost(f"the SSH connection broke ({_said(error)})")

    @contextlib.contextmanager
    def _started(self, script: bytes, deadline: Deadline) -> Iterator[paramiko.Channel]:
        with self._session(deadline) as session:
            with self._bounded(deadline, session):
                session.exec_command(_SHELL)
                session.sendall(script)
                session.shutdown_write()
            yield session

    def _collect(
        self, session: paramiko.Channel, command: MarkedCommand, deadline: Deadline, enough: Callable[[], bool]
    ) -> None:
        poll = select.poll()
        poll.register(session.fileno(), select.POLLIN)
        while not enough():
            if not deadline.left():
                raise _silence()
            over = session.eof_received or session.closed  # read first, as output may arrive in between
            with self._watched(deadline):  # reads received data without waiting
                stdout = session.recv(_READ_SIZE) if session.recv_ready() else b""
                stderr = session.recv_stderr(_READ_SIZE) if session.recv_stderr_ready() else b""
            command.feed(Stream.STDOUT, stdout)
            command.feed(Stream.STDERR, stderr)
            if stdout or stderr:
                continue
            if over:
                if not self._transport.is_active():
                    raise GuestConnectionLost("the SSH connection broke")
                return
            poll.poll(deadline.pause() * 1000)

    def _kill(self, session: paramiko.Channel, command: MarkedCommand) -> None:
        deadline = Deadline(KILL_LIMIT)
        # A guest may be so slow, or a limit so short, that the command's process ID is still on its way.
        self._collect(session, command, deadline, lambda: command.process is not None)
        if command.process is None:
            return
        with (
            self._started(guest_script("kill-group.sh", str(command.process)), deadline) as killer,
            self._bounded(deadline, killer),
        ):
            while killer.recv(_READ_SIZE):
                pass

    @contextlib.contextmanager
    def _files(
        self, deadline: Deadline, failure: str, probe: Sequence[str]
    ) -> Iterator[tuple[paramiko.SFTPClient, Callable[[], contextlib.AbstractContextManager[None]]]]:
        """SFTP on a session of its own, and the context for each step of its use.

        Raises GuestRefusal with the guest's reason. SFTP has codes for few reasons: for others the program ``probe`` is
        run, which fails for the same reason.
        """
        with self._session(deadline) as session:

            @contextlib.contextmanager
            def step() -> Iterator[None]:
                try:
                    with self._bounded(deadline, session):
                        yield
                except OSError as error:
                    reason = self._reason(probe) if error.errno is None else os.strerror(error.errno).lower()
                    raise GuestRefusal(f"{failure}: {reason}") from None

            with self._bounded(deadline, session):
                session.invoke_subsystem("sftp")
                files = BoundedFiles(session)
            yield files, step

    def _reason(self, probe: Sequence[str]) -> str:
        with contextlib.suppress(CommandTimeout):
            return complaint(self.run(["env", "LC_ALL=C", *probe], time_limit=KILL_LIMIT).stderr)
        return "the guest does not say why"
