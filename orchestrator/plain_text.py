# SPDX-License-Identifier: GPL-2.0-only
r"""Text that is safe to print, shortened texts and lists, and memory sizes.

Unprintable characters are escaped as in Python's string literals: an escape character becomes ``\x1b``, a
right-to-left override (CVE-2021-42574) ``\u202e``, a byte that is no text ``\udcff``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# ECMA-48, section 5.4: colours and movements of the cursor; xterm's operating system commands, such as a window's
# title; ECMA-35, section 13: all others.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,1000}(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")


def plain_text(text: str) -> str:
    """Escape lines of text. Line feeds and tabs stay; a carriage return before a line feed is dropped."""
    if text.isprintable():  # nearly every line of a console, which may have millions
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(_visible, line.split("\t"))) for line in lines)


def plain_line(text: str) -> str:
    """Escape one line of text: tabs become spaces, line breaks are escaped."""
    return _visible(text.expandtabs())


def without_sequences(text: str) -> str:
    """Remove a terminal's control sequences, such as the colours of a guest's programs."""
    return _SEQUENCE.sub("", text)


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def cut(text: str, most: int, end: str = " ...") -> str:
    """Shorten a text to at most ``most`` characters, ``end`` included: after a word, if one ends in the last third."""
    if len(text) <= most:
        return text
    room = most - len(end)
    space = text.rfind(" ", 2 * room // 3, room + 1)
    return text[: room if space < 0 else space].rstrip(" ,;:") + end


def counted(count: int, noun: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown(items: Sequence[str], most: int, rest: str = "... and {} more") -> list[str]:
    """The first ``most`` items, and a last one with the number of the others."""
    more = len(items) - most
    return [*items[:most], *([rest.format(more)] if more > 0 else [])]


GUEST_SIZES = "expected a size from 64M to 4G, such as 256M or 1G; a number alone is in MiB"
"""The allowed memory sizes, for error messages."""


def size_mib(text: str) -> int | None:
    """The MiB of a size such as ``1500M`` or ``8G``; None for anything else."""
    match = re.fullmatch(r"([1-9][0-9]{0,6})([MG])", text)
    return None if match is None else int(match[1]) * {"M": 1, "G": 1024}[match[2]]


def guest_mib(value: object) -> int | None:
    """A guest's memory in MiB, from a size or a number of MiB; None for a value outside ``GUEST_SIZES``."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    mib = int(text) if re.fullmatch(r"[1-9][0-9]{0,6}", text) else size_mib(text)
    return mib if mib is not None and 64 <= mib <= 4096 else None


_MOST_NAMES = 3
"""The most names that a sentence lists."""


def listed(names: Iterable[str], most: int = _MOST_NAMES, rest: str = "{} others") -> str:
    """Distinct names in a sentence: ``a, b and c``, or the first ``most`` and the number of others.

    Semicolons separate names with commas.
    """
    known = list(dict.fromkeys(names))
    *first, last = known if len(known) == most + 1 else shown(known, most, rest)
    comma = "; " if any("," in name for name in (*first, last)) else ", "
    return f"{comma.join(first)} and {last}" if first else last
