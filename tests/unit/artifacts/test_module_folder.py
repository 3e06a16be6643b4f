# SPDX-License-Identifier: GPL-2.0-only
"""Which variables may a user's folder be built with?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.artifacts.modules import _assignments, _write
from orchestrator.errors import UsageError


def test_variables_become_arguments_of_make_as_they_are() -> None:
    assert _assignments({"WORDS": 7, "CONFIG_SAMPLE": "m", "FLAGS": "-DA=1 -O1"}) == [
        "CONFIG_SAMPLE=m",
        "FLAGS=-DA=1 -O1",
        "WORDS=7",
    ]


@pytest.mark.parametrize("value", ["$(shell id)", "`id`", "a;b", "a\nb", "a'b", "a#b", "x" * 201])
def test_a_value_that_make_or_a_shell_expands_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="that is no variable for make"):
        _assignments({"A": value})


@pytest.mark.parametrize("name", ["-f", "--eval", "1A", "", "A:", "A B"])
def test_an_option_of_make_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="that is no variable for make"):
        _assignments({name: "x"})


@pytest.mark.parametrize("name", ["M", "CC", "CROSS_COMPILE", "ARCH", "O", "KBUILD_OUTPUT"])
def test_what_says_what_is_built_where_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="the lab gives make this variable itself"):
        _assignments({name: "/elsewhere"})


def test_a_program_that_make_calls_stays_one(tmp_path: Path) -> None:
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    script = tmp_path / "from" / "generate.sh"
    script.touch()
    script.chmod(0o755)
    _write({"generate.sh": b"#!/bin/sh\n"}, script.parent, tmp_path / "to")
    assert (tmp_path / "to" / "generate.sh").stat().st_mode & 0o777 == 0o755
