# SPDX-License-Identifier: GPL-2.0-only
"""Does the hub pass whole frames to all others, and is it held up by none that does not read?"""

from __future__ import annotations

import contextlib
import os
import socket
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
    """A connection as QEMU has it, which inherits the descriptor."""
    connection = socket.socket(fileno=os.dup(hub.next_lan().descriptor))
    connection.settimeout(LIMIT)
    return connection


def received(connection: socket.socket, count: int) -> list[bytes]:
    return [connection.recv(1 << 17) for _ in range(count)]


def test_a_frame_reaches_all_others_whole(hub: Hub) -> None:
    first, second, third = (connected(hub) for _ in range(3))
    frames = [bytes([number]) * (number * 700) for number in range(1, 98)]
    for start in range(0, len(frames), 10):
        for frame in frames[start : start + 10]:
            first.send(frame)
        for other_socket in (second, third):
            assert received(other_socket, len(frames[start : start + 10])) == frames[start : start + 10]
    second.send(b"back")
    assert received(first, 1) == received(third, 1) == [b"back"]  # and nothing of its own before


def test_a_guest_that_reads_nothing_holds_up_no_other(hub: Hub) -> None:
    first, second, third = (connected(hub) for _ in range(3))
    for number in range(2000):
        first.send(b"%d" % number)
        assert received(second, 1) == [b"%d" % number]
    # What waits for the third is bounded: the first frames are in the kernel's queue, the last ones in the hub's.
    found = [int(received(third, 1)[0])]
    while found[-1] != 1999:
        found += [int(received(third, 1)[0])]
    assert found == sorted(found)
    assert len(found) < 2000


def test_each_guest_has_its_place() -> None:
    hub = Hub()
    first, second = hub.next_lan(), hub.next_lan()
    assert (first.address, second.address) == ("192.168.77.1", "192.168.77.2")
    assert first.mac != second.mac
    hub.close()
    for lan in (first, second):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(lan.descriptor)
