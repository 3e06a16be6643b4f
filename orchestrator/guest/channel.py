# SPDX-License-Identifier: GPL-2.0-only
"""The contract of channels into a guest: commands with their output and status, files and folders both ways.

``tests/qemu/channel_contract.py`` tests it with each channel. Time limits are in host seconds during which a processor
was available (see ``deadline``), as a guest's own clock may jump.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from orchestrator.errors import CommandTimeout, GuestError, GuestHang
from orchestrator.guest.console import QUOTED_LINES, plain_lines

COMMAND_LIMIT = 60.0
"""Host seconds for a command, a file, or a condition to become true, by default."""

KILL_LIMIT = 10.0
"""Seconds that a guest may take to kill a command."""

OUTPUT_MAX = 256 << 20
"""Bytes that one command may print on a stream; more is an error rather than the end of the host's memory."""

DIRECTORY = "/"
"""The working directory of every command."""

COMMAND_LINE_MAX = 64 * 1024
"""Bytes of a command's directory and words, including terminators."""

_PATH_MAX = 4000
_QUOTED_BYTES = 4096


class Stream(StrEnum):
    """The stream that a command prints on."""

    STDOUT = "stdout"
    STDERR = "stderr"


Listener = Callable[[Stream, bytes], None]
"""Receives a command's output as it arrives."""


@dataclass(frozen=True)
class CommandResult:
    """How a command ended, and what it printed."""

    argv: tuple[str, ...]
    """The command."""
    status: int
    """Its exit status, or 128 + the signal that killed it, as in a shell."""
    stdout: bytes
    """Standard output; empty if a listener received it."""
    stderr: bytes
    """Standard error; empty if a listener received it."""

    @property
    def text(self) -> str:
        """Standard output as text, with invalid UTF-8 replaced."""
        return self.stdout.decode("utf-8", errors="replace")


class Channel(Protocol):
    """One connection to one guest; one request at a time.

    Every request raises GuestConnectionLost if the channel broke, GuestHang if the guest does not answer, and
    GuestError, with the guest's reason, if the guest refuses it.
    """

    def run(self, argv: Sequence[str], *, time_limit: float, listener: Listener | None = None) -> CommandResult:
        """Run a program with empty standard input; collect its output or pass it to a listener.

        Status 127: no such program; 126: not executable. Does not wait for background processes. Raises CommandTimeout
        if its process group was killed after ``time_limit`` seconds, GuestHang if even the kill got no answer.
        """

    def put(self, content: bytes | Path, target: str, *, mode: int, time_limit: float) -> None:
        """Write a file in the guest, replacing any there. Raises OSError if the host's file cannot be read."""

    def get(self, source: str, *, time_limit: float, largest: int = OUTPUT_MAX) -> bytes:
        """Read a whole file of the guest. Raises GuestError if it has more than ``largest`` bytes."""

    def close(self) -> None:
        """Close the connection."""


class TooMuchOutput(GuestError):
    """A command printed more than the lab keeps."""


class CommandOutput:
    """A command's output so far, kept or passed to a listener."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self._buffers = {stream: bytearray() for stream in Stream}

    def add(self, stream: Stream, data: bytes) -> None:
        """Add output. Raises TooMuchOutput if more than OUTPUT_MAX is kept."""
        if self._listener is not None:
            self._listener(stream, data)
            return
        buffer = self._buffers[stream]
        buffer += data
        if len(buffer) > OUTPUT_MAX:
            raise TooMuchOutput(f"a command printed more than {OUTPUT_MAX >> 20} MiB")

    def result(self, argv: Sequence[str], status: int) -> CommandResult:
        stdout, stderr = (bytes(self._buffers[stream]) for stream in Stream)
        return CommandResult(tuple(argv), status, stdout, stderr)

    def last_lines(self) -> list[str]:
        return plain_lines(b"\n".join(bytes(buffer[-_QUOTED_BYTES:]) for buffer in self._buffers.values()))[
            -QUOTED_LINES:
        ]


@contextmanager
def killed_when_late(
    command: str, time_limit: float, output: CommandOutput, kill: Callable[[], object]
) -> Iterator[None]:
    """Context that collects a command's output, and kills a command that prints too much or exceeds its time.

    Raises CommandTimeout, or GuestHang if the guest does not answer the kill.
    """
    try:
        yield
    except (TooMuchOutput, GuestHang) as error:
        late = f"{command} did not end within {time_limit:g} s"
        try:
            kill()
        except GuestHang:
            raise GuestHang(f"{late}, and the guest does not answer any more") from None
        if isinstance(error, TooMuchOutput):
            raise
        raise CommandTimeout(f"{late} and was killed", detail=output.last_lines()) from None


def check_command(argv: Sequence[str]) -> None:
    """Raise GuestError for a command that no guest can run."""
    if not argv or any("\0" in word for word in argv):
        raise GuestError("a command needs a program and cannot hold NUL characters")
    if sum(len(os.fsencode(word)) + 1 for word in (DIRECTORY, *argv)) > COMMAND_LINE_MAX:
        raise GuestError(f"the command line is longer than {COMMAND_LINE_MAX} bytes", hint="put the data into a file")


def command_name(argv: Sequence[str]) -> str:
    """A command's name in errors: its program, or the name (``$0``) given to a shell's script."""
    match argv:
        case ["sh", "-c", _, name, *_]:
            return name
        case [program, *_]:
            return program
    return "nothing"


def guest_path(path: str) -> bytes:
    """Encode a path in the guest. Raises GuestError for an invalid one."""
    encoded = os.fsencode(path)
    if not path.startswith("/") or b"\0" in encoded or len(encoded) > _PATH_MAX:
        raise GuestError(f"{path!r} is not an absolute path in the guest")
    return encoded


def blocks(content: bytes | Path, size: int) -> Generator[bytes, None, None]:
    """Yield the content, or that of a host's file, in blocks. Raises OSError if it cannot be read."""
    if isinstance(content, Path):
        with content.open("rb") as file:
            while block := file.read(size):
                yield block
    else:
        for start in range(0, len(content), size):
            yield content[start : start + size]


def complaint(printed: bytes) -> str:
    """The reason in a guest program's error message, for use in a sentence."""
    lines = plain_lines(printed[:_QUOTED_BYTES])
    return lines[0].rpartition(": ")[2].lower() if lines and ": " in lines[0] else "the guest does not say why"
