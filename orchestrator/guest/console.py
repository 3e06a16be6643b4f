# SPDX-License-Identifier: GPL-2.0-only
"""A guest's console: the log of what it prints, read by lines and by the kernel's reports of trouble."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import HostError
from orchestrator.files import is_full, room_left
from orchestrator.guest.kernel_reports import KernelReport, reports_in
from orchestrator.plain_text import plain_line, plain_text, without_sequences

QUOTED_LINES = 10
"""Last lines of a program's output or of a console that an error quotes."""

REPORTS_MAX = 100
"""Limit of reports examined: a broken kernel can repeat one for ever."""

_TAIL_BYTES = 16 * 1024
_LINE_BYTES = 1024
_TAIL_LINES = 20
_MOST_AT_ONCE = 1 << 20
_PADDING = " \t\r\0"
_POLL = 0.01


class Console:
    """The log file that QEMU writes the guest's serial console to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def last_lines(self, count: int = _TAIL_LINES) -> list[str]:
        return self._lines(-_TAIL_BYTES)[-count:]

    def last_line(self) -> str:
        lines = self._lines(-_LINE_BYTES)
        return plain_line(lines[-1]) if lines else ""

    def length(self) -> int:
        """Bytes printed so far: a mark after which to look for trouble."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def reports(self, after: int = 0) -> Iterator[KernelReport]:
        return reports_in(self._all_lines(after))

    def check_room(self) -> None:
        """Raise HostError if the log's disk is full, so that lines may be missing. QEMU 7.2 drops them silently."""
        folder = self.path.parent
        if is_full(folder):
            what = f"there is no room left for what the guest prints: {room_left(folder)}"
            raise HostError(what, where=str(self.path), hint="make room, then run again, or resume with --resume")

    def whole_lines(self, after: int) -> tuple[list[str], int]:
        """The complete lines printed since the mark ``after``, and the next mark."""
        try:
            with self.path.open("rb") as file:
                file.seek(after)
                text = file.read(_MOST_AT_ONCE)
        except FileNotFoundError:
            return [], after
        end = text.rfind(b"\n") + 1
        if not end and len(text) == _MOST_AT_ONCE:
            end = len(text)  # an unfinished line is left for later
        return plain_lines(text[:end]), after + end

    def followed(
        self, after: int, silence: float, most: int, has_ended: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[list[str], int]]:
        """The lines printed after the mark ``after``, as they come, each batch with the mark before it.

        Ends after ``silence`` seconds without output, after ``most`` bytes, or when ``has_ended`` and all was read.
        """
        deadline, end = Deadline(silence), after + most
        while deadline.left() and after < end:
            ended = has_ended()  # checked first, so that the last output is read
            lines, mark = self.whole_lines(after)
            if mark > after:
                yield lines, after
                after, deadline = mark, Deadline(silence)
            elif ended:
                return
            else:
                time.sleep(_POLL)

    def printing(self, silence: float, has_ended: Callable[[], bool]) -> Iterator[None]:
        """Yield at once and after each output, until it has ended or nothing was printed for ``silence`` seconds."""
        deadline, printed = Deadline(silence), -1
        while True:
            length = self.length()
            if length != printed:
                printed, deadline = length, Deadline(silence)
                yield
            if has_ended() or not deadline.left():
                return
            time.sleep(_POLL)

    def _all_lines(self, after: int) -> Iterator[str]:
        """Every line since the mark ``after``, so that much output cannot hide what the kernel reported."""
        lines, mark = self.whole_lines(after)
        while lines or mark > after:
            yield from lines
            after = mark
            lines, mark = self.whole_lines(after)
        yield from self._lines(after)

    def _lines(self, start: int) -> list[str]:
        """The lines from a byte offset on; a negative one counts from the end."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size + start) if start < 0 else start)
                return plain_lines(file.read(_MOST_AT_ONCE))
        except FileNotFoundError:
            return []


def plain_lines(text: bytes) -> list[str]:
    """A guest's output as lines for an error to quote: without empty lines and terminal controls."""
    lines = (line.rstrip(_PADDING) for line in without_sequences(text.decode("utf-8", errors="replace")).split("\n"))
    return [plain_text(line) for line in lines if line]
