# SPDX-License-Identifier: GPL-2.0-only
"""What is on a guest's console: its last lines, and the kernel's reports of trouble among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.disk_room import is_full, room_left
from orchestrator.errors import HostError
from orchestrator.guest.kernel_reports import KernelReport, reports_in
from orchestrator.plain_text import plain_line, plain_text, without_sequences

REPORTS_MAX = 100
"""Reports that whoever judges a guest looks at: a kernel that is broken can repeat one for ever."""

_TAIL_BYTES = 16 * 1024
_LINE_BYTES = 1024
_QUOTED_LINES = 20
_MOST_AT_ONCE = 1 << 20
_PADDING = " \t\r\0"


class Console:
    """The log file that QEMU writes the guest's serial console to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def last_lines(self, count: int = _QUOTED_LINES) -> list[str]:
        """The last printed lines, without control characters."""
        return self._lines(-_TAIL_BYTES)[-count:]

    def last_line(self) -> str:
        """The last line that was printed, for a terminal to show."""
        lines = self._lines(-_LINE_BYTES)
        return plain_line(lines[-1]) if lines else ""

    def length(self) -> int:
        """Bytes printed so far: a mark to look for trouble after."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def reports(self, after: int = 0) -> Iterator[KernelReport]:
        """All that the kernel reported since the mark ``after``, one report after the other."""
        return reports_in(self._all_lines(after))

    def check_room(self) -> None:
        """Raise HostError where the log's disk is full: lines may be missing. QEMU 7.2 drops them without a word."""
        folder = self.path.parent
        if is_full(folder):
            what = f"there is no room left for what the guest prints: {room_left(folder)}"
            raise HostError(what, where=str(self.path), hint="make room, then run again, or go on with --resume")

    def whole_lines(self, after: int) -> tuple[list[str], int]:
        """The lines that were printed to their ends since the mark ``after``, and the mark to go on from."""
        try:
            with self.path.open("rb") as file:
                file.seek(after)
                text = file.read(_MOST_AT_ONCE)
        except FileNotFoundError:
            return [], after
        end = text.rfind(b"\n") + 1
        if not end and len(text) == _MOST_AT_ONCE:
            end = len(text)  # a line without an end is not waited for
        return plain_lines(text[:end]), after + end

    def _all_lines(self, after: int) -> Iterator[str]:
        """Every line since the mark ``after``: a guest that prints a lot does not hide what its kernel reported."""
        lines, mark = self.whole_lines(after)
        while lines or mark > after:
            yield from lines
            after = mark
            lines, mark = self.whole_lines(after)
        yield from self._lines(after)

    def _lines(self, start: int) -> list[str]:
        """The lines from a byte offset on; negative: from the end."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size + start) if start < 0 else start)
                return plain_lines(file.read(_MOST_AT_ONCE))
        except FileNotFoundError:
            return []


def plain_lines(text: bytes) -> list[str]:
    """The lines that a guest printed, for an error to quote: no empty ones, and nothing that a terminal would obey."""
    lines = (line.rstrip(_PADDING) for line in without_sequences(text.decode("utf-8", errors="replace")).split("\n"))
    return [plain_text(line) for line in lines if line]
