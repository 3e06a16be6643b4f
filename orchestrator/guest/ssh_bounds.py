# SPDX-License-Identifier: GPL-2.0-only
"""Bounds for what a guest's sshd, and its server of files, announce or send unasked.

paramiko 5.1 reads as many bytes as a packet's length says, up to 4 GiB and before anybody has logged in, keeps whatever
a session sends beyond its window, and reads as many attributes of a file as a count says. An honest server is far below
each of these limits.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar

import paramiko
from paramiko.common import MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA
from paramiko.packet import Packetizer
from paramiko.sftp import CMD_ATTRS, CMD_HANDLE

_PACKET_MAX = 256 << 10
"""Bytes of an SSH packet; OpenSSH takes and sends no larger ones (PACKET_MAX_SIZE of packet.c)."""

_GREETING_MAX = 64 << 10
"""Bytes before and of the line with the protocol's version, which has 255 (RFC 4253, section 4.2)."""

_FILES_PACKET_MAX = 64 << 10
"""Bytes of a reply about files: we ask for 32 KiB at a time, and for no lists."""

_HANDLE_MAX = 256
"""Bytes of a file's handle (draft-ietf-secsh-filexfer-02, section 6.3)."""

_EXTENDED = 1 << 31
"""The flag of attributes that are followed by a count of further ones (section 5 there); OpenSSH's server has none."""

_WORD = struct.Struct(">I")


class BoundedPacketizer(Packetizer):
    """Reads packets that are no larger than an sshd's."""

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self._greeted = 0

    def read_all(self, n: int, *options: Any, **named: Any) -> bytes:
        """Read some bytes. Raises SSHException for more than a packet has."""
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
    """A connection whose other side keeps within each session's window."""

    def __init__(self, sock: Any, **options: Any) -> None:
        super().__init__(sock, packetizer_class=BoundedPacketizer, **options)

    _channel_handler_table: ClassVar[Any] = {
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_DATA: lambda session, message: _feed(session, session._feed, message),
        MSG_CHANNEL_EXTENDED_DATA: lambda session, message: _feed(session, session._feed_extended, message),
    }


class BoundedFiles(paramiko.SFTPClient):
    """A client of files that believes no length, and no count."""

    def _read_packet(self) -> tuple[int, bytes]:
        """The kind of the next reply, and its content. Raises SFTPError for what no honest server sends."""
        (size,) = _WORD.unpack(self._read_all(_WORD.size))  # type: ignore[attr-defined]
        if not _WORD.size < size <= _FILES_PACKET_MAX:  # the kind, and the request's number or the version
            raise paramiko.SFTPError(f"it announces {size} bytes")
        content: bytes = self._read_all(size)  # type: ignore[attr-defined]
        kind, words = content[0], content[1:]
        # Behind the request's number stand a handle's length, or the flags of attributes.
        second = _WORD.unpack_from(words, _WORD.size)[0] if len(words) >= 2 * _WORD.size else 0
        if kind == CMD_HANDLE and second > _HANDLE_MAX:
            raise paramiko.SFTPError(f"it has a handle of {second} bytes")
        if kind == CMD_ATTRS and second & _EXTENDED:
            raise paramiko.SFTPError("it counts attributes that were not asked for")
        return kind, words


def _feed(session: paramiko.Channel, feed: Any, message: paramiko.Message) -> None:
    """Keep what a session sends, unless it has sent more than its window before."""
    if len(session.in_buffer) + len(session.in_stderr_buffer) > session.in_window_size:
        raise paramiko.SSHException("a session sends more than its window")
    feed(message)
