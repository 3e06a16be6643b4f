# SPDX-License-Identifier: GPL-2.0-only
"""Text of a guest becomes visible and harmless; lines and tabs stay."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from orchestrator.cli import one_guest
from orchestrator.cli.main import app
from orchestrator.errors import CommandFailed, GuestError, UsageError
from orchestrator.experiment.guest_spec import MachineSpec, guest_spec
from orchestrator.plain_text import cut, guest_mib, plain_line, plain_text, shown, size_mib, without_sequences
from orchestrator.pytest_plugin.marks import checked

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


def test_long_lists_show_their_first_entries() -> None:
    assert shown(["a", "b"], 2) == ["a", "b"]
    assert shown(["a", "b", "c"], 1) == ["a", "... and 2 more"]
    assert shown(["a", "b", "c"], 2, "{} others") == ["a", "b", "1 others"]
    assert shown([], 2) == []


def test_a_long_text_is_cut_after_a_word() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "ab ..."
    assert cut("the kernel refuses it", 18) == "the kernel ..."
    assert cut("the kernel, refused", 15) == "the kernel ..."
    assert cut("the kernel refuses it", 14) == "the kernel ..."
    assert cut("the longwordwithoutend", 18) == "the longwordwi ..."  # no word ends near


@given(st.text(), st.integers(4, 50))
def test_a_cut_text_is_no_longer_than_wanted(text: str, most: int) -> None:
    short = cut(text, most)
    assert len(short) <= most
    assert short == text if len(text) <= most else short.endswith(" ...")
    assert cut(short, most) == short


# Is a guest's memory spelled alike in an experiment, in a mark and on the command line?


def on_the_command_line(text: str) -> int:
    """What the machine of ``exec --memory`` has, in MiB."""
    with patch.object(one_guest.GuestChoice, "machine", autospec=True, side_effect=UsageError("chosen")) as chosen:
        CliRunner().invoke(app, ["exec", "--offline", f"--memory={text}", "--", "true"])
    return guest_spec(chosen.call_args.args[0].guest).memory_mib


@pytest.mark.parametrize(("text", "mib"), [("256M", 256), ("1G", 1024), ("4G", 4096), ("64M", 64), ("512", 512)])
def test_all_take_the_same_spellings(text: str, mib: int) -> None:
    assert guest_mib(text) == mib
    assert MachineSpec.model_validate({"cpu": "pentium4", "memory": text}).memory_mib == mib
    assert checked({"memory": text}).memory_mib == mib
    assert on_the_command_line(text) == mib


def test_a_number_of_yaml_or_python_is_in_mib() -> None:
    machine = MachineSpec.model_validate({"cpu": "pentium4", "memory": 512})
    assert (machine.memory, machine.memory_mib) == ("512M", 512)
    assert checked({"memory": 512}).memory_mib == 512


@pytest.mark.parametrize(
    "value", ["63M", "5G", "4097", "4097M", "0x100", "256m", "256 M", "256MB", "", "M", "-256", True, 256.0, None]
)
def test_wrong_memory_sizes_are_refused(value: object) -> None:
    assert guest_mib(value) is None


def test_a_size_has_a_unit_and_no_bounds() -> None:
    assert [size_mib(text) for text in ("8G", "1500M", "1M", "8", "8K", "0G")] == [8192, 1500, 1, None, None, None]
