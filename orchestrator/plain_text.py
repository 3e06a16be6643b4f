# SPDX-License-Identifier: GPL-2.0-only
r"""Text for people: nothing that a terminal would obey, numbers of things in words, sizes of memory.

What is not printable becomes visible, as Python's string literals write it: an escape character ``\x1b``, a
right-to-left override (CVE-2021-42574) ``\u202e``, a byte that is no text ``\udcff``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# ECMA-48, section 5.4: colours and movements of the cursor; xterm's operating system commands, such as a window's
# title; ECMA-35, section 13: all others.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,1000}(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")


def plain_text(text: str) -> str:
    """Lines of text: line feeds and tabs stay, and a carriage return before a line feed goes."""
    if text.isprintable():  # nearly every line of a console, which may have millions
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(_visible, line.split("\t"))) for line in lines)


def plain_line(text: str) -> str:
    """One line of text: tabs become spaces, and line breaks are visible."""
    return _visible(text.expandtabs())


def without_sequences(text: str) -> str:
    """Text without a terminal's control sequences, which a guest's programs colour their lines with."""
    return _SEQUENCE.sub("", text)


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def cut(text: str, most: int, end: str = " ...") -> str:
    """A text of at most so many characters; of a longer one the beginning, and ``end``."""
    return text if len(text) <= most else text[: most - len(end)] + end


def counted(count: int, noun: str) -> str:
    """``1 cell``, ``2 cells``: a noun whose plural ends in s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown(items: Sequence[str], most: int, rest: str = "... and {} more") -> list[str]:
    """The first items, and behind them how many more there are."""
    more = len(items) - most
    return [*items[:most], *([rest.format(more)] if more > 0 else [])]


GUEST_SIZES = "expected a size from 64M to 4G, such as 256M or 1G; a number alone is in MiB"
"""What a guest's memory may be, for whoever has written something else."""


def size_mib(text: str) -> int | None:
    """The MiB of a size such as ``1500M`` or ``8G``; None for anything else."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([MG])", text)
    return None if found is None else int(found[1]) * {"M": 1, "G": 1024}[found[2]]


def guest_mib(value: object) -> int | None:
    """The MiB of a guest's memory: a size, or a number of MiB as a number or as text; None for no ``GUEST_SIZES``."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    mib = int(text) if re.fullmatch(r"[1-9][0-9]{0,6}", text) else size_mib(text)
    return mib if mib is not None and 64 <= mib <= 4096 else None
