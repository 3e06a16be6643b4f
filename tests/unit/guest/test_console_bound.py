# SPDX-License-Identifier: GPL-2.0-only
"""Is what a guest makes QEMU write looked at, until somebody stops it?"""

from __future__ import annotations

import threading
from pathlib import Path

from orchestrator.guest.qemu import ConsoleBound


def test_the_file_that_grows_beyond_the_limit_is_named(tmp_path: Path) -> None:
    console, messages, missing = tmp_path / "console", tmp_path / "messages", tmp_path / "missing"
    console.write_bytes(bytes(10))
    messages.write_bytes(bytes(11))
    ended = threading.Event()
    bound = ConsoleBound([missing, console, messages], 10, ended.set)
    ended.wait()
    assert bound.exceeded == messages
    bound.stop()


def test_what_is_stopped_ends_nothing(tmp_path: Path) -> None:
    console = tmp_path / "console"
    console.write_bytes(bytes(10))
    threads, ended = threading.active_count(), threading.Event()
    bound = ConsoleBound([console], 10, ended.set)
    bound.stop()
    assert threading.active_count() == threads
    assert not ended.is_set()
    assert bound.exceeded is None
