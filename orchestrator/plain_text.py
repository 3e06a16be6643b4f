# SPDX-License-Identifier: GPL-2.0-only
r"""Text that a terminal, a log or a page only shows, and never obeys: guests, files and programs write much of it.

What is not printable becomes visible, as Python's string literals write it: an escape character ``\x1b``, a
right-to-left override (CVE-2021-42574) ``\u202e``, a byte that is no text ``\udcff``.
"""

from __future__ import annotations

import re

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


class _Shown(dict[int, str]):
    """What is shown of a character, by its code."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        shown = character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        if code < _MOST_KEPT:
            self[code] = shown
        return shown


_MOST_KEPT = 0x3000
"""Codes: most alphabets. A guest may print all there are."""
_shown = _Shown()


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return text.translate(_shown)
