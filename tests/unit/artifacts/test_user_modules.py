# SPDX-License-Identifier: GPL-2.0-only
"""Which variables may a user's folder be built with?"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.artifacts.modules import Module, _assignments, _write, check_parameter_names
from orchestrator.errors import ConfigError, UsageError


def test_variables_become_arguments_of_make_as_they_are() -> None:
    assert _assignments({"WORDS": 7, "CONFIG_SAMPLE": "m", "FLAGS": "-DA=1 -O1"}) == [
        "CONFIG_SAMPLE=m",
        "FLAGS=-DA=1 -O1",
        "WORDS=7",
    ]


@pytest.mark.parametrize("value", ["$(shell id)", "`id`", "a;b", "a\nb", "a'b", "a#b", "x" * 201])
def test_a_value_that_make_or_a_shell_expands_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="that is not a variable for make"):
        _assignments({"A": value})


@pytest.mark.parametrize("name", ["-f", "--eval", "1A", "", "A:", "A B"])
def test_an_option_of_make_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="that is not a variable for make"):
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


# Is a parameter that a module has not got told from one that it has?

# What module_param() makes of one, as far as it matters.
PARAMETER = """\
static const char __param_str_{0}[] = "{0}";
static const char *const __param_{0} __attribute__((used, section("__param"))) = __param_str_{0};
"""


def module(folder: Path, parameters: Sequence[str], *options: str) -> Module:
    (folder / "own.c").write_text("int x;\n" + "".join(PARAMETER.format(name) for name in parameters))
    subprocess.run(["gcc", "-c", "own.c", "-o", "own.ko"], cwd=folder, check=True)
    if options:
        subprocess.run(["strip", *options, "own.ko"], cwd=folder, check=True)
    return Module("own", folder / "own.ko", "key", None)


def test_a_parameter_that_is_there_is_taken(tmp_path: Path) -> None:
    check_parameter_names(module(tmp_path, ["count", "whom"]), ["whom", "count", "dyndbg"])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (["count", "whom"], "own: unknown parameter 'cout'; allowed: count, whom; did you mean 'count'"),
        ([], "own has no parameter 'cout': it has no parameters at all"),
    ],
)
def test_file_that_is_no_module_is_refused(tmp_path: Path, parameters: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_parameter_names(module(tmp_path, parameters), ["cout"])


def test_a_stripped_module_may_have_any(tmp_path: Path) -> None:
    check_parameter_names(module(tmp_path, ["count"], "--strip-unneeded"), ["cout"])


def test_a_file_that_is_no_module_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "own.ko").write_text("nothing")
    with pytest.raises(ConfigError, match="is not a kernel module"):
        check_parameter_names(Module("own", tmp_path / "own.ko", "key", None), ["count"])
