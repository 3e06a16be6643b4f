# SPDX-License-Identifier: GPL-2.0-only
"""The log of a fleet's processes: what they and Dask print goes to a file of bounded size, and to no terminal."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from orchestrator.plain_text import plain_line

LARGEST = 1 << 20
_KEPT = LARGEST // 4
_LONGEST_LINE = 1000
_QUOTED = 8
_READ = 64 << 10
_INTERVAL = 5.0
_ERROR = re.compile(r"[A-Za-z_][A-Za-z_.]*(Error|Exception): ")
"""The last line of a traceback."""


class KeptLog:
    """A log that other processes append to, too. It is shortened from its beginning when it has become too long."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._lock = threading.Lock()

    def line(self, source: str, text: str) -> None:
        """Append a line that came from elsewhere: bounded, and with nothing in it that a terminal obeys."""
        shown = plain_line(text[:_LONGEST_LINE])
        os.write(self.descriptor, f"{source}: {shown}\n".encode(errors="replace"))
        self.shorten()

    def shorten(self) -> None:
        """Keep the last quarter of a log that is too long. What is appended meanwhile may be lost."""
        with self._lock:
            size = os.fstat(self.descriptor).st_size
            if size > LARGEST:
                kept = os.pread(self.descriptor, _KEPT, size - _KEPT)
                os.ftruncate(self.descriptor, 0)
                os.write(self.descriptor, b"...\n" + kept.partition(b"\n")[2])

    async def tend(self) -> None:
        """Shorten it every few seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            self.shorten()

    def empty(self) -> None:
        """Begin anew."""
        os.ftruncate(self.descriptor, 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def told(file: Path, source: str = "") -> Sequence[str]:
    """What the end of a log says went wrong, to be quoted: errors in a sentence each, without their tracebacks.

    With a ``source`` it is the last lines that came from there; so it is where there are no errors.
    """
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - _READ))
            text = opened.read().decode(errors="replace")
    except OSError:
        return []
    lines = [line[:_LONGEST_LINE] for line in text.splitlines() if line.strip()]
    if source:
        lines = [line for line in lines if line.startswith(f"{source}: ")]
    errors = list(dict.fromkeys(line for line in lines if _ERROR.match(line)))
    return (errors or lines)[-_QUOTED:]


@contextmanager
def output_into(log: KeptLog) -> Iterator[TextIO]:
    """Send this process's standard output and errors, and those of all that it starts, to the log.

    The stream is the standard error that was there before.
    """
    before = [os.dup(1), os.dup(2)]
    try:
        with os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace") as stream:
            for number in (1, 2):
                os.dup2(log.descriptor, number)
            yield stream
    finally:
        for number, was in zip((1, 2), before, strict=True):
            os.dup2(was, number)
            os.close(was)
