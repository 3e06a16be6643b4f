# SPDX-License-Identifier: GPL-2.0-only
"""What every channel into a guest does: commands in, their output and status back, files both ways.

``tests/qemu/channel_contract.py`` tests this contract with each channel. Time limits are in host seconds in which a
processor could be had (see ``deadline``): a guest's own clock may jump.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from orchestrator.errors import GuestError
from orchestrator.guest.console import plain_lines

COMMAND_LIMIT = 60.0
"""Host seconds for a command, a file, or a condition to become true, where nothing else is said."""

KILL_LIMIT = 10.0
"""Seconds that a guest may take to kill a command."""

OUTPUT_MAX = 256 << 20
"""Bytes that one command may print on a stream; more is an error rather than the end of the host's memory."""

COMMAND_LINE_MAX = 64 * 1024
"""Bytes of a command's directory and words, each with its end."""

_PATH_MAX = 4000
_QUOTED_LINES = 10
_QUOTED_BYTES = 4096


class Stream(StrEnum):
    """What a command prints on."""

    STDOUT = "stdout"
    STDERR = "stderr"


Listener = Callable[[Stream, bytes], None]
"""Gets a command's output as it comes."""


@dataclass(frozen=True)
class CommandResult:
    """How a command ended, and what it printed."""

    argv: tuple[str, ...]
    """The command."""
    status: int
    """Its exit status, or 128 + the signal that killed it, as in a shell."""
    stdout: bytes
    """Standard output; empty where a listener got it."""
    stderr: bytes
    """Standard error; empty where a listener got it."""

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are no UTF-8 are replaced."""
        return self.stdout.decode("utf-8", errors="replace")


class Channel(Protocol):
    """One way into one guest; one request at a time.

    Every request raises GuestConnectionLost when the channel broke, GuestHang when the guest does not answer, and
    GuestError, with the guest's reason, when the guest refuses it.
    """

    def run(
        self, argv: Sequence[str], *, time_limit: float, directory: str = "/", listener: Listener | None = None
    ) -> CommandResult:
        """Run a program, its standard input empty; collect what it prints or give it to a listener.

        Status 127 means that there is no such program, 126 that it may not be executed. A process that it leaves behind
        is not waited for. Raises CommandTimeout when it was killed, with its process group, after ``time_limit``
        seconds; GuestHang when even that got no answer.
        """
        ...

    def put(self, content: bytes | Path, target: str, *, mode: int, time_limit: float) -> None:
        """Write a file in the guest, over what is there. Raises OSError for a file of the host that cannot be read."""
        ...

    def get(self, source: str, *, time_limit: float, largest: int = OUTPUT_MAX) -> bytes:
        """Read a file of the guest whole. Raises GuestError when it has more than ``largest`` bytes."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class TooMuchOutput(GuestError):
    """A command printed more than is kept."""


class Output:
    """What a command has printed so far: kept, or given to a listener."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self._kept = {stream: bytearray() for stream in Stream}

    def add(self, stream: Stream, data: bytes) -> None:
        """Take some output. Raises TooMuchOutput when more is kept than OUTPUT_MAX."""
        if self._listener is not None:
            self._listener(stream, data)
            return
        kept = self._kept[stream]
        kept += data
        if len(kept) > OUTPUT_MAX:
            raise TooMuchOutput(f"a command printed more than {OUTPUT_MAX >> 20} MiB")

    def result(self, argv: Sequence[str], status: int) -> CommandResult:
        """The whole of a command that has ended."""
        stdout, stderr = (bytes(self._kept[stream]) for stream in Stream)
        return CommandResult(tuple(argv), status, stdout, stderr)

    def last_lines(self) -> list[str]:
        """The last printed lines, for an error to quote."""
        return plain_lines(b"\n".join(bytes(kept[-_QUOTED_BYTES:]) for kept in self._kept.values()))[-_QUOTED_LINES:]


def check_command(argv: Sequence[str], directory: str) -> None:
    """Refuse a command that no guest could be given. Raises GuestError."""
    words = [directory, *argv]
    if not argv or any("\0" in word for word in words):
        raise GuestError("a command needs a program and cannot hold NUL characters")
    if sum(len(os.fsencode(word)) + 1 for word in words) > COMMAND_LINE_MAX:
        raise GuestError(f"the command line is longer than {COMMAND_LINE_MAX} bytes", hint="put the data into a file")


def command_name(argv: Sequence[str]) -> str:
    """What a command is called in errors: its program, or what a shell's script was given as its name (``$0``)."""
    match argv:
        case ["sh", "-c", _, name, *_]:
            return name
        case [program, *_]:
            return program
    return "nothing"


def guest_path(path: str) -> bytes:
    """A path in the guest, encoded. Raises GuestError for one that cannot be."""
    encoded = os.fsencode(path)
    if not path.startswith("/") or b"\0" in encoded or len(encoded) > _PATH_MAX:
        raise GuestError(f"{path!r} is no absolute path in the guest")
    return encoded


def blocks(content: bytes | Path, size: int) -> Generator[bytes, None, None]:
    """The content, or that of a file of the host, piece by piece. Raises OSError when it cannot be read."""
    if isinstance(content, Path):
        with content.open("rb") as file:
            while block := file.read(size):
                yield block
    else:
        for start in range(0, len(content), size):
            yield content[start : start + size]


def complaint(printed: bytes) -> str:
    """The reason, for a sentence of ours, from what a program in the guest printed about its failure."""
    lines = plain_lines(printed[:_QUOTED_BYTES])
    return lines[0].rpartition(": ")[2].lower() if lines and ": " in lines[0] else "the guest does not say why"
