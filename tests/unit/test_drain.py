# SPDX-License-Identifier: GPL-2.0-only
"""Is a console that nobody listens to held up by nothing, and read by nobody else afterwards?"""

from __future__ import annotations

import socket
import threading

from orchestrator.guest.drain import drained


def test_what_is_said_meanwhile_is_taken_and_what_comes_later_is_not() -> None:
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
