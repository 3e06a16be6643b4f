# SPDX-License-Identifier: GPL-2.0-only
"""The lines that a guest printed, without what the kernel's log puts before them.

On a serial console the kernel prints its messages wherever a program's output has got to, also inside a line::

    not [    1.234567] random: crng init done
    ok 1 - the test

The pieces are put together again, and the line is marked as cut.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from orchestrator.plain_text import plain_text

LINE_MAX = 4096
LINES_MAX = 500_000
"""Characters of a line, and lines, that are looked at."""

# What info_print_prefix() of kernel/printk/printk.c prints: the level with console_msg_format=syslog, the time with
# CONFIG_PRINTK_TIME, and with CONFIG_PRINTK_CALLER the thread or CPU, in at least six characters. A space follows the
# last two.
_LEVEL = r"<\d{1,3}>"
_TIME = r"\[ {0,12}\d{1,12}\.\d{6}\](?:\[ {0,12}[TC]\d{1,10}\])?"
_CALLER = r"\[(?=[ TC\d]{6,})[ ]{0,4}[TC]\d{1,10}\]"
_PREFIX = re.compile(rf"(?:{_LEVEL})?(?:{_TIME}|{_CALLER}) ?|{_LEVEL}")
# A level alone begins a message only where words follow: "vector<3>::at" does not.
_INSIDE = re.compile(rf"(?:{_LEVEL})?(?:{_TIME}|{_CALLER})(?= |$)|{_LEVEL}(?=[^\s:,.;>)\]}}])")
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class TooManyLinesError(Exception):
    """More was printed than is looked at."""


class Cut(Enum):
    """What a message of the kernel's inside a line is."""

    NONE = auto()
    """The line quotes it."""
    JOINED = auto()
    """It was printed inside the line, whose other piece is the next line."""
    APART = auto()
    """It was printed behind the line, and the next one is whole."""


@dataclass(frozen=True)
class PrintedLine:
    """A line with its indentation. ``is_logged``: the kernel's log has it, with a prefix.

    ``cut_at`` is where a message of the kernel's was printed inside the line; None where none was.
    """

    text: str
    is_logged: bool = False
    cut_at: int | None = None


Judge = Callable[[str, str | None], Cut]
"""What is a message, by the line's text before it and the next line? None: there is no next one that is a program's."""


def printed_lines(text: str, judge: Judge) -> Iterator[PrintedLine]:
    """The lines without log prefixes and control characters. Raises TooManyLinesError.

    ``judge`` is asked about a line when all lines before it have been taken.
    """
    held: tuple[PrintedLine, int] | None = None  # waits for the line that follows, with the place of the message in it
    for line in _lines(text):
        start = 0 if line.is_logged else 1
        if held is not None and (held[0].is_logged or not line.is_logged):
            before, message = held[0].text[: held[1]], held[0].text[held[1] :]
            cut = judge(before, None if line.is_logged else line.text)
            if cut is Cut.JOINED and line.text.startswith(before) and _INSIDE.match(line.text, len(before)):
                cut = Cut.NONE  # one more line that quotes one
            if cut is Cut.JOINED and not line.is_logged:
                yield PrintedLine(_PREFIX.sub("", message, count=1), is_logged=True)
                line = PrintedLine((before + line.text)[:LINE_MAX], held[0].is_logged, cut_at=len(before))
                start = len(before) + 1
            else:
                yield from _parts(held, cut)
            held = None
        if inside := _INSIDE.search(line.text, start):
            held = line, inside.start()
        else:
            yield line
    if held is not None:
        yield from _parts(held, judge(held[0].text[: held[1]], None))


def _lines(text: str) -> Iterator[PrintedLine]:
    """One at a time: as a list, 16 MiB of short lines take half a gigabyte."""
    for number, whole in enumerate(io.StringIO(text, newline="\n")):
        if number == LINES_MAX:
            raise TooManyLinesError(f"it has more than {LINES_MAX} lines; the others were not looked at")
        line = plain_text(_CONTROL.sub("", whole.rstrip("\n")[:LINE_MAX]).rstrip())
        prefix = _PREFIX.match(line)
        yield PrintedLine(line[prefix.end() :], is_logged=True) if prefix else PrintedLine(line)


def _parts(held: tuple[PrintedLine, int], cut: Cut) -> Iterator[PrintedLine]:
    """The whole line, or its text and then the message that was printed behind it."""
    line, end = held
    if cut is Cut.NONE:
        yield line
    else:
        yield PrintedLine(line.text[:end], line.is_logged, cut_at=end)
        yield PrintedLine(_PREFIX.sub("", line.text[end:], count=1), is_logged=True)
