# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest's sshd that announces or sends too much refused, before the host has read it?"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import paramiko
import pytest
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED, cMSG_CHANNEL_DATA
from paramiko.sftp import CMD_ATTRS, CMD_DATA, CMD_HANDLE, CMD_STATUS, CMD_VERSION

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestConnectionLost, GuestError, GuestHang
from orchestrator.guest.ssh import BoundedPacketizer, SshChannel

KEY = paramiko.ECDSAKey.generate()
LIMIT = 600.0
"""Seconds: never reached."""

Serve = Callable[[paramiko.Channel], None]


class _Server(paramiko.ServerInterface):
    """An sshd that lets everybody in, and leaves a session to ``serve``."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        return self._begin(channel)

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        return self._begin(channel)

    def _begin(self, channel: paramiko.Channel) -> bool:
        def work() -> None:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                self._serve(channel)

        threading.Thread(target=work, daemon=True).start()
        return True


@contextlib.contextmanager
def sshd(serve: Serve) -> Iterator[SshChannel]:
    """A channel to an sshd on the loopback whose sessions are ``serve``'s."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            # A client on a slow host gives a connection up after paramiko's 15 s for a banner, and comes again.
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:  # it was closed
                    return
                transport = paramiko.Transport(connection)
                transport.add_server_key(KEY)
                with contextlib.suppress(EOFError, ConnectionError, paramiko.SSHException):
                    transport.start_server(server=_Server(serve))

        threading.Thread(target=accept, daemon=True).start()
        channel = SshChannel.connect(listening.getsockname()[1], KEY, KEY, Deadline(LIMIT))
        with contextlib.closing(channel):
            yield channel


def packet(kind: int, content: bytes) -> bytes:
    return struct.pack(">IB", len(content) + 1, kind) + content


def files(*replies: bytes) -> Serve:
    """A server of files with these replies to the first requests, and zeros without end behind them."""

    def serve(session: paramiko.Channel) -> None:
        for number, reply in enumerate((packet(CMD_VERSION, b"\0\0\0\3"), *replies)):
            size = struct.unpack(">I", _exactly(session, 4))[0]
            request = _exactly(session, size)[1:5]
            session.sendall(reply if number == 0 else reply.replace(b"NNNN", request))
        while True:
            session.sendall(bytes(32768))

    return serve


def _exactly(session: paramiko.Channel, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = session.recv(size - len(content))
        if not piece:
            raise EOFError
        content += piece
    return content


HANDLE = packet(CMD_HANDLE, b"NNNN" + struct.pack(">I", 4) + b"file")
SIZE_10 = packet(CMD_ATTRS, b"NNNN" + struct.pack(">IQ", 1, 10))


@pytest.mark.parametrize(
    ("replies", "complaint"),
    [
        ([b"\xff\xff\xff\xff"], "announces 4294967295 bytes"),
        ([b"\0\xff\xff\xff"], "announces 16777215 bytes"),
        ([struct.pack(">I", 65537)], "announces 65537 bytes"),
        ([b"\0\0\0\0"], "announces 0 bytes"),
        ([packet(CMD_HANDLE, b"\0\0")], "announces 3 bytes"),
        ([packet(CMD_HANDLE, b"NNNN" + struct.pack(">I", 257) + bytes(257))], "a handle of 257 bytes"),
        (
            [HANDLE, packet(CMD_ATTRS, b"NNNN" + struct.pack(">II", 1 << 31, 0xFFFFFFFF))],
            "counts attributes that were not asked for",
        ),
        ([HANDLE, SIZE_10, b"\xff\xff\xff\xff"], "announces 4294967295 bytes"),
    ],
)
def test_a_server_of_files_that_announces_too_much_is_refused(replies: list[bytes], complaint: str) -> None:
    with sshd(files(*replies)) as channel, pytest.raises(GuestConnectionLost, match=complaint):
        channel.get("/etc/passwd", time_limit=LIMIT)


def test_a_server_of_files_that_announces_what_it_has_is_read() -> None:
    data = packet(CMD_DATA, b"NNNN" + struct.pack(">I", 10) + b"0123456789")
    end = packet(CMD_STATUS, b"NNNN" + struct.pack(">III", 1, 0, 0))
    with sshd(files(HANDLE, SIZE_10, data, end, end)) as channel:
        assert channel.get("/etc/passwd", time_limit=LIMIT) == b"0123456789"


def test_a_version_that_is_none_is_refused() -> None:
    def serve(session: paramiko.Channel) -> None:
        session.sendall(packet(CMD_VERSION, b"\0"))

    with sshd(serve) as channel, pytest.raises(GuestConnectionLost, match="announces 2 bytes"):
        channel.get("/etc/passwd", time_limit=LIMIT)


def test_a_session_that_sends_beyond_its_window_ends_the_connection() -> None:
    sent = 0

    def serve(session: paramiko.Channel) -> None:
        nonlocal sent
        transport: Any = session.get_transport()
        while sent < 1 << 30:
            message = paramiko.Message()
            message.add_byte(cMSG_CHANNEL_DATA)
            message.add_int(getattr(session, "remote_chanid"))  # noqa: B009 - the stubs lack it
            message.add_string(bytes(32768))
            transport._send_user_message(message)
            sent += 32768

    # The command's script waits for a window that never opens; meanwhile nobody reads what is sent.
    with sshd(serve) as channel, pytest.raises(GuestError):
        channel.put(bytes(64 << 20), "/tmp/file", mode=0o600, time_limit=LIMIT)
    assert sent < 1 << 30


def test_a_server_of_files_that_says_nothing_is_given_up() -> None:
    over = threading.Event()

    def serve(session: paramiko.Channel) -> None:
        over.wait()

    with sshd(serve) as channel, pytest.raises(GuestHang, match="gave no answer"):
        channel.get("/etc/passwd", time_limit=0.5)
    over.set()


def test_a_session_that_breaks_while_it_is_closed_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()

    class Breaking(paramiko.Channel):
        def close(self) -> None:
            closed.set()
            raise EOFError

    uncaught: list[object] = []
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    with sshd(lambda session: None) as channel, channel._bounded(Deadline(0.0), Breaking(1)):
        closed.wait()
        for thread in threading.enumerate():
            if thread.name.endswith("(abandon)"):
                thread.join()
    assert not uncaught


def test_a_deadline_is_asked_by_one_thread() -> None:
    """Of two threads that ask at once, each would put it off by what was waited for a processor."""

    class Asked(Deadline):
        def left(self) -> float:
            threads.append(threading.current_thread())
            return super().left()

    threads: list[threading.Thread] = []
    with sshd(lambda session: None) as channel, channel._session(Deadline(LIMIT)) as session:
        before = set(threading.enumerate())
        with channel._bounded(Asked(LIMIT), session):
            begun = set(threading.enumerate()) - before
        for thread in begun:
            thread.join()
    assert len(set(threads)) == 1


def packetizer(sent: bytes) -> BoundedPacketizer:
    ours, theirs = socket.socketpair()
    threading.Thread(target=_send, args=(theirs, sent), daemon=True).start()
    ours.settimeout(LIMIT)
    return BoundedPacketizer(ours)


def _send(connection: socket.socket, content: bytes) -> None:
    with connection, contextlib.suppress(OSError):
        connection.sendall(content)


@pytest.mark.parametrize("length", [0xFFFFFFF4, 0x7FFFFFF4, (256 << 10) + 12])
def test_a_packet_that_is_too_long_is_refused_before_it_is_read(length: int) -> None:
    reading: Any = packetizer(struct.pack(">I", length) + bytes(1 << 20))
    with pytest.raises(paramiko.SSHException, match=r"^it announces a packet of \d+ bytes$"):
        reading.read_message()


@pytest.mark.parametrize("greeting", [b"x" * (1 << 20), b"hello\r\n" * (1 << 18)])
def test_a_greeting_without_an_end_is_refused(greeting: bytes) -> None:
    reading: Any = packetizer(greeting)
    with pytest.raises(paramiko.SSHException, match="does not come to its protocol's version"):
        list(iter(lambda: reading.readline(LIMIT), "SSH-2.0"))


def test_what_an_sshd_says_is_quoted_in_short() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.sendall(b"SSH-1.0-\x1b[2J" + b"x" * 10_000 + b"\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(GuestHang) as caught:
            SshChannel.connect(listening.getsockname()[1], KEY, KEY, Deadline(0.5))
    assert len(str(caught.value)) < 300
    assert "\x1b" not in str(caught.value)
