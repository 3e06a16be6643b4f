# SPDX-License-Identifier: GPL-2.0-only
"""A prompt for a person in a guest of a test: the console is the guest's log, so lines go through its channel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO

from orchestrator.errors import GuestError, HostError
from orchestrator.guest.channel import Stream
from orchestrator.guest.guest import Guest

_TERMINAL = Path("/dev/tty")
"""The terminal itself: pytest has taken standard input and output."""

_LINE_LIMIT = 24 * 3600.0


def converse(guest: Guest) -> None:
    """Run each line that a person types with a shell in the guest, until ``exit`` or the end of input.

    Each line has a shell of its own. Raises HostError without a terminal.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        raise HostError("a worker of pytest-xdist has no terminal", hint="run this test with -n 0")
    try:
        with _TERMINAL.open() as lines, _TERMINAL.open("w") as out:
            _converse(guest, lines, out)
    except OSError as error:
        raise HostError(f"there is no terminal for a prompt in the guest: {error.strerror}") from None


def _converse(guest: Guest, lines: TextIO, out: TextIO) -> None:
    def show(stream: Stream, data: bytes) -> None:
        del stream  # one terminal shows both
        print(data.decode("utf-8", errors="replace"), end="", file=out, flush=True)

    print(f"\nguest {guest.console.path.stem}; its console: {guest.console.path}; `exit` goes on", file=out)
    while True:
        print("guest# ", end="", file=out, flush=True)
        line = lines.readline()
        if not line or line.strip() == "exit":
            print(file=out, flush=True)
            return
        try:
            guest.run(["sh", "-c", line], time_limit=_LINE_LIMIT, listener=show)
        except GuestError as error:
            print(f"{type(error).__name__}: {error}", file=out, flush=True)
