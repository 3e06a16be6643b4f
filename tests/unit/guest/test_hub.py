# SPDX-License-Identifier: GPL-2.0-only
"""Does the hub pass whole frames to all others, and nothing of one that sends none?"""

from __future__ import annotations

import contextlib
import socket
import stat
from collections.abc import Iterator

import pytest

from orchestrator.guest.hub import Hub

LIMIT = 600.0


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub without guests."""
    with contextlib.closing(Hub()) as opened:
        yield opened


def connected(hub: Hub) -> socket.socket:
    """A connection as QEMU makes it, which has been accepted."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(LIMIT)
    connection.connect(str(hub.next_lan().socket))
    return connection


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4) + content


def received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        assert part, "the hub has hung up"
        found += part
    return found


def test_a_frame_reaches_all_others_whole(hub: Hub) -> None:
    first, second, third = (connected(hub) for _ in range(3))
    frames = [framed(bytes([number]) * (number * 700)) for number in range(1, 20)]
    stream = b"".join(frames)
    for start in range(0, len(stream), 999):
        first.sendall(stream[start : start + 999])
    for other in (second, third):
        assert received(other, len(stream)) == stream
    second.sendall(framed(b"back"))
    assert received(first, 8) == framed(b"back")  # and nothing of its own before
    assert received(third, 8) == framed(b"back")


def test_a_guest_that_ends_or_sends_nonsense_is_disconnected(hub: Hub) -> None:
    first, second, third = (connected(hub) for _ in range(3))
    first.sendall(framed(b"whole") + framed(b"half")[:6])
    first.close()
    second.sendall(b"\xff\xff\xff\xff nonsense")
    assert received(second, 9) == framed(b"whole")
    assert second.recv(1) == b""
    third.sendall(framed(b"nobody hears this"))
    assert received(third, 9) == framed(b"whole")


def test_its_folder_is_private_and_goes_with_it() -> None:
    hub = Hub()
    first, second = hub.next_lan(), hub.next_lan()
    assert (first.address, second.address) == ("192.168.77.1", "192.168.77.2")
    assert first.mac != second.mac
    assert stat.S_IMODE(first.socket.parent.stat().st_mode) == 0o700
    hub.close()
    assert not first.socket.parent.exists()
