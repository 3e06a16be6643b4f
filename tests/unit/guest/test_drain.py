# SPDX-License-Identifier: GPL-2.0-only
"""Does draining keep an unread console from blocking, and end so that a channel can read it?"""

from __future__ import annotations

import socket
import threading

from orchestrator.guest.qemu import drained


def test_output_is_discarded_until_draining_ends() -> None:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    with ours, theirs:
        with drained(ours):
            for _ in range(20_000):  # without a reader some hundreds of bytes fit
                theirs.send(b"x")
        ours.setblocking(False)
        while True:
            try:
                assert set(ours.recv(1 << 16)) == set(b"x")
            except BlockingIOError:
                break
        theirs.send(b"later")
        assert ours.recv(100) == b"later"


def test_a_console_that_ends_meanwhile_is_left_alone() -> None:
    ours, theirs = socket.socketpair()
    before = threading.active_count()
    with ours:
        with drained(ours):
            theirs.close()
        assert ours.recv(1) == b""
    assert threading.active_count() == before
