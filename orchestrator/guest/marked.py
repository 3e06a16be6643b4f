# SPDX-License-Identifier: GPL-2.0-only
"""Where a command's output begins and ends on a channel that carries bytes and no frames.

``images/guest/run-command.sh`` writes a line with a random token before and behind it on either stream. A pipe keeps
its order, so the last line marks the end of the output, even where another process still holds the pipe open.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence

from orchestrator.guest.channel import Output, Stream
from orchestrator.paths import data_dir

_JUNK_MAX = 4096


def guest_script(name: str, *words: str) -> bytes:
    """A script of ours with its arguments in it, for a shell that reads it from somewhere."""
    text = (data_dir("images") / "guest" / name).read_bytes()
    return b"set -- " + shlex.join(words).encode("utf-8", "surrogateescape") + b"\n" + text


class MarkedCommand:
    """One command and its output so far. ``status`` is its exit status when ``ended``."""

    def __init__(self, argv: Sequence[str], directory: str, output: Output) -> None:
        token = secrets.token_hex(16)
        self.script = guest_script("run-command.sh", token, directory, *argv)
        self.argv = tuple(argv)
        self.output = output
        self._streams = {stream: _MarkedStream(token.encode()) for stream in Stream}

    @property
    def process(self) -> int | None:
        """The process ID, in the guest, of the leader of the command's group, once it is known."""
        return next((marked.first for marked in self._streams.values() if marked.first is not None), None)

    @property
    def status(self) -> int | None:
        """The command's exit status, once it is known."""
        return next((marked.last for marked in self._streams.values() if marked.last is not None), None)

    @property
    def ended(self) -> bool:
        """Whether all its output was received."""
        return all(marked.last is not None for marked in self._streams.values())

    def feed(self, stream: Stream, data: bytes) -> None:
        """Process what was received on a stream. Raises TooMuchOutput."""
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
        """The command's output in the stream so far that was not returned yet."""
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
        return self._content()

    def _content(self) -> bytes:
        mark = self._mark.search(self._pending)
        if mark is not None:
            self.last = int(mark[1])
            end = mark.start()
        else:
            end = self._possible_mark()
        content, self._pending = self._pending[:end], self._pending[end:]
        return content

    def _possible_mark(self) -> int:
        """Where a mark may have begun of which the rest is still to come."""
        begun = self._begun_mark.search(self._pending)
        if begun is not None:
            return begun.start()
        tail = min(len(self._token) - 1, len(self._pending))
        lengths = (n for n in range(tail, 0, -1) if self._pending.endswith(self._token[:n]))
        return len(self._pending) - next(lengths, 0)
