# SPDX-License-Identifier: GPL-2.0-only
"""What is on a guest's console: its last lines, and the kernel's reports of trouble among them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

_TAIL_BYTES = 16 * 1024
_QUOTED_LINES = 20
_MOST_AT_ONCE = 1 << 20
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*)?[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BEGINNING = r"(?:^|\[ *\d+\.\d{6}\] )"
"""Where a kernel message begins: behind its time stamp, which may itself stand behind a line that user space began."""


class Trouble(StrEnum):
    """What a kernel can report, the worst last."""

    WARNING = "warning"
    STALL = "stall"
    OOPS = "oops"
    PANIC = "panic"


_SIGNS = {
    Trouble.WARNING: r"WARNING: CPU: \d+ PID:",
    Trouble.STALL: r"(?:rcu: )?INFO: \w+ (?:self-)?detected (?:expedited )?stall|watchdog: BUG: soft lockup|"
    r"INFO: task .{1,60} blocked for more than",
    Trouble.OOPS: r"BUG: |Oops:|Oops \[#|general protection fault|kernel BUG at|divide error: |invalid opcode: |"
    r"double fault: |stack segment: |int3: ",
    Trouble.PANIC: r"Kernel panic - not syncing",
}
_PATTERNS = {trouble: re.compile(_BEGINNING + f"(?:{signs})") for trouble, signs in _SIGNS.items()}


class Console:
    """The log file that QEMU writes the guest's serial console to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def last_lines(self, count: int = _QUOTED_LINES) -> list[str]:
        """The last printed lines, without control characters."""
        return self._lines(-_TAIL_BYTES)[-count:]

    def length(self) -> int:
        """Bytes printed so far: a mark to look for trouble after."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def trouble(self, after: int = 0) -> tuple[Trouble, list[str]] | None:
        """The worst the kernel reported since the mark ``after``, with the lines around its first sign.

        User space can print on the console as well, so this is a reason to look, not a proof.
        """
        lines = self._lines(after)
        worst: tuple[Trouble, int] | None = None
        for number, line in enumerate(lines):
            for trouble, pattern in _PATTERNS.items():
                if pattern.search(line) and (worst is None or _RANK[trouble] > _RANK[worst[0]]):
                    worst = (trouble, number)
        if worst is None:
            return None
        trouble, number = worst
        return trouble, lines[max(0, number - 3) : number + _QUOTED_LINES]

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

    def _lines(self, start: int) -> list[str]:
        """The lines from a byte offset on (negative: from the end), at most the last 4 MiB of them."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                begin = max(0, size + start) if start < 0 else start
                file.seek(max(begin, size - (4 << 20)))
                return plain_lines(file.read())
        except FileNotFoundError:
            return []


def plain_lines(text: bytes) -> list[str]:
    """The lines that a guest printed, for an error to quote: no empty ones, and no control sequences of a terminal."""
    lines = text.decode("utf-8", errors="replace").split("\n")
    return [line for line in (_CONTROL.sub("", line).rstrip() for line in lines) if line]


_RANK = {trouble: rank for rank, trouble in enumerate(Trouble)}
