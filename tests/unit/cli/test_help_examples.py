# SPDX-License-Identifier: GPL-2.0-only
"""Does the help of each command end with two examples, and can they be run as they stand?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from orchestrator.cli.main import app, examples

_SHELL = ("&&", "|")
"""What ends an example's command, for a shell; a word may begin with ``>`` besides."""


def all_commands(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    """Each command by its name behind its group's."""
    for name, below in getattr(command, "commands", {}).items():
        yield from all_commands(below, *names, name)
    if not hasattr(command, "commands"):
        yield " ".join(names), command


ROOT: Any = typer.main.get_command(app)
COMMANDS = dict(all_commands(ROOT))


@pytest.mark.parametrize("name", ROOT.commands)
def test_the_list_of_commands_has_the_first_line_of_each_one_s_help(name: str) -> None:
    printed = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).stdout.split())
    assert f"│ {name} {ROOT.commands[name].help.partition(chr(10))[0]} │" in printed


def test_each_command_has_two_examples() -> None:
    assert {name: len(those) for name, those in examples().items()} == dict.fromkeys(COMMANDS, 2)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_is_one_of_its_command_and_has_options_that_there_are(name: str) -> None:
    for example in examples()[name]:
        words = shlex.split(example)
        end = next((at for at, word in enumerate(words) if word in _SHELL or word.startswith(">")), len(words))
        called, arguments = words[: len(name.split())], words[len(name.split()) : end]
        assert " ".join(called) == name
        COMMANDS[name].make_context(name, arguments)


@pytest.mark.parametrize("name", ["run", "build module"])
def test_help_ends_with_them_each_on_a_line_that_can_be_pasted(name: str) -> None:
    printed = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "100"}, prog_name="orchestrator")
    lines = [line.strip() for line in printed.stdout.splitlines() if line.strip()]
    assert lines[-3:] == ["Examples:", *(f"orchestrator {example}" for example in examples()[name])]
