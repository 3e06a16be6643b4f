# SPDX-License-Identifier: GPL-2.0-only
"""The lines of a guest's output, without the prefixes of the kernel's log.

On a serial console the kernel may print a message inside a program's line::

    not [    1.234567] random: crng init done
    ok 1 - the test

The pieces of such a line are joined, and the line is marked as cut.
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
"""The most parsed characters of a line, and lines."""


# The prefix of info_print_prefix() in kernel/printk/printk.c: the level with console_msg_format=syslog, the time with
# CONFIG_PRINTK_TIME, and with CONFIG_PRINTK_CALLER the thread or CPU, in at least six characters. A space follows the
# last two.
_LEVEL = r"<\d{1,3}>"


_TIME = r"\[ {0,12}\d{1,12}\.\d{6}\](?:\[ {0,12}[TC]\d{1,10}\])?"


_CALLER = r"\[(?=[ TC\d]{6,})[ ]{0,4}[TC]\d{1,10}\]"


_PREFIX = re.compile(rf"(?:{_LEVEL})?(?:{_TIME}|{_CALLER}) ?|{_LEVEL}")


# A level alone begins a message only if words follow, unlike in "vector<3>::at".
_INSIDE = re.compile(rf"(?:{_LEVEL})?(?:{_TIME}|{_CALLER})(?= |$)|{_LEVEL}(?=[^\s:,.;>)\]}}])")


_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class TooManyLinesError(Exception):
    """The output has more than LINES_MAX lines."""


class LineCut(Enum):
    """How a kernel message inside a line affects the line."""

    NONE = auto()
    """The line quotes the message."""
    JOINED = auto()
    """The message was printed inside the line, which continues on the next line."""
    APART = auto()
    """The message was printed after the line, and the next line is whole."""


@dataclass(frozen=True)
class PrintedLine:
    """A line with its indentation; ``is_logged`` if it had a log prefix, ``cut_at`` is a kernel message's place."""

    text: str
    is_logged: bool = False
    cut_at: int | None = None


Judge = Callable[[str, str | None], LineCut]
"""Classifies a message by the line's text before it and by the next line, None if no program line follows."""


def printed_lines(text: str, judge: Judge) -> Iterator[PrintedLine]:
    """The lines without log prefixes and control characters. Raises TooManyLinesError.

    ``judge`` is called for a line after all lines before it were consumed.
    """
    held: tuple[PrintedLine, int] | None = None  # a line that waits for the next one, and the place of its message
    for line in _lines(text):
        start = 0 if line.is_logged else 1
        if held is not None and (held[0].is_logged or not line.is_logged):
            before, message = held[0].text[: held[1]], held[0].text[held[1] :]
            cut = judge(before, None if line.is_logged else line.text)
            if cut is LineCut.JOINED and line.text.startswith(before) and _INSIDE.match(line.text, len(before)):
                cut = LineCut.NONE  # the next line quotes a message, too
            if cut is LineCut.JOINED and not line.is_logged:
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
    """An iterator, because a list of 16 MiB of short lines takes half a gigabyte."""
    for number, whole in enumerate(io.StringIO(text, newline="\n")):
        if number == LINES_MAX:
            raise TooManyLinesError(f"it has more than {LINES_MAX} lines; the others were not parsed")
        line = plain_text(_CONTROL.sub("", whole.rstrip("\n")[:LINE_MAX]).rstrip())
        prefix = _PREFIX.match(line)
        yield PrintedLine(line[prefix.end() :], is_logged=True) if prefix else PrintedLine(line)


def _parts(held: tuple[PrintedLine, int], cut: LineCut) -> Iterator[PrintedLine]:
    """The whole line, or its text and then the message after it."""
    line, end = held
    if cut is LineCut.NONE:
        yield line
    else:
        yield PrintedLine(line.text[:end], line.is_logged, cut_at=end)
        yield PrintedLine(_PREFIX.sub("", line.text[end:], count=1), is_logged=True)
