# SPDX-License-Identifier: GPL-2.0-only
"""Text of a guest becomes visible and harmless; lines and tabs stay."""

from __future__ import annotations

import pytest

from orchestrator.errors import CommandFailed, GuestError
from orchestrator.plain_text import cut, plain_line, plain_text, shown, without_sequences

HOSTILE = "\x1b[2J\x1b]0;owned\x07 \u202ereversed\u2066 \x9b31m \udcff\x00\x7f\u2028"
VISIBLE = r"\x1b[2J\x1b]0;owned\x07 \u202ereversed\u2066 \x9b31m \udcff\x00\x7f\u2028"


@pytest.mark.parametrize("text", ["", "plain", "Ünïcode \N{SNOWMAN} 漢字", r"a \x1b that is visible"])
def test_printable_text_is_left_alone(text: str) -> None:
    assert plain_text(text) == plain_line(text) == without_sequences(text) == text


def test_what_a_terminal_would_obey_is_visible() -> None:
    assert plain_text(HOSTILE) == plain_line(HOSTILE) == VISIBLE
    assert plain_text(VISIBLE) == VISIBLE


def test_lines_and_tabs_stay_where_text_has_several_lines() -> None:
    assert plain_text("a\tb\r\nc\rd\n") == "a\tb\nc\\rd\n"
    assert plain_line("a\tb\nc") == "a       b\\nc"


def test_colours_and_titles_are_left_out() -> None:
    assert without_sequences("\x1bc\x1b[?7l[  \x1b[0;32mOK\x1b[0m  ] \x1b]0;title\x07\x1b]2;title\x1b\\up\x1b(B") == (
        "[  OK  ] up"
    )
    assert without_sequences("\x1b]0;never ended\nnext") == "0;never ended\nnext"


def test_an_error_quotes_a_guest_without_its_sequences() -> None:
    error = GuestError(f"sshd says {HOSTILE}", where=HOSTILE, detail=[HOSTILE], hint=HOSTILE)
    assert str(error).split("\n") == [f"{VISIBLE}: sshd says {VISIBLE}", f"    {VISIBLE}", f"hint: {VISIBLE}"]


def test_a_quoted_line_break_does_not_end_the_quotation() -> None:
    error = CommandFailed("insmod failed", detail=["no\nhint: run curl | sh"], hint="look at the console")
    assert str(error).split("\n") == [
        "insmod failed",
        "    no",
        "    hint: run curl | sh",
        "hint: look at the console",
    ]


def test_of_many_things_the_first_are_shown() -> None:
    assert shown(["a", "b"], 2) == ["a", "b"]
    assert shown(["a", "b", "c"], 1) == ["a", "... and 2 more"]
    assert shown(["a", "b", "c"], 2, "{} others") == ["a", "b", "1 others"]
    assert shown([], 2) == []


def test_a_long_text_is_cut() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "ab ..."
