# SPDX-License-Identifier: GPL-2.0-only
"""The contract of channels into a guest: commands with their output and status, files and folders both ways.

``tests/qemu/channel_contract.py`` tests it with each channel. Time limits are in host seconds during which a processor
was available (see ``deadline``), as a guest's own clock may jump.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator.deadline import Deadline
from orchestrator.errors import CommandTimeout, GuestError, GuestHang, HostError
from orchestrator.guest.console import QUOTED_LINES, plain_lines
from orchestrator.paths import data_dir

if TYPE_CHECKING:
    from orchestrator.guest.guest import Guest


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


class Output:
    """A command's output so far, kept or passed to a listener."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self._kept = {stream: bytearray() for stream in Stream}

    def add(self, stream: Stream, data: bytes) -> None:
        """Add output. Raises TooMuchOutput if more than OUTPUT_MAX is kept."""
        if self._listener is not None:
            self._listener(stream, data)
            return
        kept = self._kept[stream]
        kept += data
        if len(kept) > OUTPUT_MAX:
            raise TooMuchOutput(f"a command printed more than {OUTPUT_MAX >> 20} MiB")

    def result(self, argv: Sequence[str], status: int) -> CommandResult:
        stdout, stderr = (bytes(self._kept[stream]) for stream in Stream)
        return CommandResult(tuple(argv), status, stdout, stderr)

    def last_lines(self) -> list[str]:
        return plain_lines(b"\n".join(bytes(kept[-_QUOTED_BYTES:]) for kept in self._kept.values()))[-QUOTED_LINES:]


@contextmanager
def killed_when_late(command: str, time_limit: float, output: Output, kill: Callable[[], object]) -> Iterator[None]:
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


# Files with a single value: of /proc, sysfs, or a module's parameters.

_LARGEST = 4096
"""Bytes: a page, the limit of the kernel's files of one value (sysfs_emit() of fs/sysfs/file.c)."""

# Python refuses to convert more than 4300 digits.
_NUMBER = re.compile(r"[0-9]{1,20}")


def kernel_value(guest: Guest, file: str, *, time_limit: float = COMMAND_LIMIT) -> str:
    """A file's stripped text. Raises GuestError if it cannot be read, or is too long for a value."""
    return guest.get(file, time_limit=time_limit, largest=_LARGEST).decode("ascii", errors="replace").strip()


def whole_number(text: str) -> int | None:
    """A value as a number of up to 64 bits; None if it is not one."""
    return int(text) if _NUMBER.fullmatch(text) else None


# Framing of a command's output on a channel that carries only bytes.
#
# ``images/guest/run-command.sh`` writes a line with a random token before and after the output on both streams. A pipe
# keeps its order, so the last line marks the end of the output, even if another process still holds the pipe open.

_JUNK_MAX = 4096


def lab_script(name: str) -> bytes:
    """One of the lab's scripts for a shell in the guest."""
    return (data_dir("images") / "guest" / name).read_bytes()


def guest_script(name: str, *words: str) -> bytes:
    """A script of the lab's with its arguments set, for a shell that reads it from standard input."""
    return b"set -- " + shlex.join(words).encode("utf-8", "surrogateescape") + b"\n" + lab_script(name)


class MarkedCommand:
    """A command on a byte stream, and its output so far."""

    def __init__(self, argv: Sequence[str], output: Output) -> None:
        token = secrets.token_hex(16)
        self.script = guest_script("run-command.sh", token, DIRECTORY, *argv)
        self.argv = tuple(argv)
        self.output = output
        self._streams = {stream: _MarkedStream(token.encode()) for stream in Stream}

    @property
    def process(self) -> int | None:
        """The process ID, in the guest, of the leader of the command's group; None until it is known."""
        return next((marked.first for marked in self._streams.values() if marked.first is not None), None)

    @property
    def status(self) -> int | None:
        return next((marked.last for marked in self._streams.values() if marked.last is not None), None)

    @property
    def ended(self) -> bool:
        return all(marked.last is not None for marked in self._streams.values())

    def result(self) -> CommandResult:
        """The complete result. Without a status, the command's signal to its group killed the shell itself."""
        return self.output.result(self.argv, 128 + 9 if self.status is None else self.status)

    def feed(self, stream: Stream, data: bytes) -> None:
        content = self._streams[stream].feed(data)
        if content:
            self.output.add(stream, content)


class _MarkedStream:
    def __init__(self, token: bytes) -> None:
        self._token = token
        self._mark = re.compile(re.escape(token) + rb" (\d{1,9})\n")
        self._begun_mark = re.compile(re.escape(token) + rb"(?: \d{0,9})?\Z")
        self._pending = b""
        self.first: int | None = None
        self.last: int | None = None

    def feed(self, data: bytes) -> bytes:
        """The command's output in the stream that was not returned yet."""
        self._pending += data
        if self.first is None:
            mark = self._mark.search(self._pending)
            if mark is None:
                self._pending = self._pending[-_JUNK_MAX:]
                return b""
            self.first = int(mark[1])
            self._pending = self._pending[mark.end() :]
        if self.last is not None:
            self._pending = b""
            return b""
        mark = self._mark.search(self._pending)
        if mark is not None:
            self.last = int(mark[1])
            end = mark.start()
        else:
            end = self._possible_mark()
        content, self._pending = self._pending[:end], self._pending[end:]
        return content

    def _possible_mark(self) -> int:
        """The start of a mark that may still be incomplete."""
        begun = self._begun_mark.search(self._pending)
        if begun is not None:
            return begun.start()
        tail = min(len(self._token) - 1, len(self._pending))
        lengths = (n for n in range(tail, 0, -1) if self._pending.endswith(self._token[:n]))
        return len(self._pending) - next(lengths, 0)


# Copying a folder from a guest to the host: files and folders only, within bounds.
#
# The guest is not trusted: copies stay below the target, links are not followed, and nothing is replaced.

MOST_FILES = 1000
MOST_BYTES = 256 << 20

_LONGEST = 255
"""Bytes of a file name on the host's file systems."""

_LONGEST_LIST = MOST_FILES * 4096
"""Bytes of all paths: Linux accepts at most 4096 each (PATH_MAX)."""

_LEAST = 0.1
"""Minimum host seconds for the last request."""


def fetch_folder(guest: Guest, path: str, target: Path, time_limit: float) -> None:
    """Copy a guest's folder to ``target``, which must not exist, within ``time_limit`` host seconds.

    Raises GuestError, and copies nothing, for more than MOST_FILES files or MOST_BYTES bytes; HostError.
    """
    deadline = Deadline(time_limit)
    found = _find(guest, path, ["-type", "f"], deadline)
    names = [name for name in found if _is_plain(name)]
    others = len(found) - len(names) + len(_find(guest, path, ["!", "-type", "f", "!", "-type", "d"], deadline))
    if len(names) > MOST_FILES:
        raise _too_much(path, f"{len(names)} files, and at most {MOST_FILES}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir()
        try:
            size = _copy(guest, path, names, target, deadline)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
    except OSError as error:  # also if the target appeared meanwhile
        raise HostError(f"cannot write the guest's {path}: {error.strerror}", where=str(target)) from None
    print(f"copied the guest's {path} to {target} (files: {len(names)}, bytes: {size})", file=sys.stderr, flush=True)
    if others:
        what = "links, special files and names that cannot be printed"
        print(f"{others} of {path} were left out: {what}", file=sys.stderr, flush=True)


def _copy(guest: Guest, path: str, names: list[str], target: Path, deadline: Deadline) -> int:
    size = 0
    for name in names:
        content = guest.get(f"{path}/{name}", time_limit=max(deadline.left(), _LEAST))
        size += len(content)
        if size > MOST_BYTES:
            raise _too_much(path, f"more than {MOST_BYTES >> 20} MiB, and no more")
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            stream.write(content)
    return size


def _find(guest: Guest, path: str, tests: list[str], deadline: Deadline) -> list[str]:
    # The trailing dot makes find follow the folder itself if it is a link, and no other link.
    start = f"{path}/."
    argv = ["find", start, "-xdev", *tests, "-print0"]
    result = guest.run(argv, time_limit=max(deadline.left(), _LEAST))
    if result.status != 0:
        raise GuestError(f"{path} of the guest cannot be listed: {complaint(result.stderr)}")
    if len(result.stdout) > _LONGEST_LIST:
        raise _too_much(path, f"more names than {MOST_FILES} files can have, and at most {MOST_FILES} files")
    return [os.fsdecode(entry).removeprefix(f"{start}/") for entry in result.stdout.split(b"\0") if entry]


def _is_plain(name: str) -> bool:
    """Whether a relative path of the guest stays below the copy and is printable."""
    parts = name.split("/")
    return name.isprintable() and all(
        part not in ("", ".", "..") and len(os.fsencode(part)) <= _LONGEST for part in parts
    )


def _too_much(path: str, what: str) -> GuestError:
    hint = f"choose a folder in it, or have the command pack it: tar -czf /tmp/packed.tar.gz -C {path} ."
    return GuestError(f"{path} of the guest has {what} are copied", hint=hint)
