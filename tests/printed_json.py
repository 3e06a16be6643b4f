# SPDX-License-Identifier: GPL-2.0-only
"""Is what a command prints for programs as its ``--schema`` says?"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import jsonschema
import typer
from typer.testing import CliRunner

from orchestrator.cli.main import app


def printing_commands() -> Iterator[tuple[str, ...]]:
    """The commands that print JSON, by their words."""
    yield from (words for words, command in _commands(typer.main.get_command(app)) if _prints_json(command))


def schema_of(*words: str) -> Any:
    """The JSON schema that a command prints, which must be one."""
    done = CliRunner().invoke(app, [*words, "--schema"])
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    schema = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def check_printed(words: Sequence[str], answer: str) -> None:
    """Check the answer of a command that was asked for JSON; another one, such as an error, is not looked at."""
    is_asked = "--json" in words or ("--format", "json") in pairwise(words)
    if not is_asked or not answer.startswith(("{", "[")):
        return
    described = (known for known, command in _commands(typer.main.get_command(app)) if _has_schema(command))
    command = next((known for known in described if tuple(words[: len(known)]) == known), None)
    if command is not None:
        clock = ("--clock", "modelled") if ("--clock", "modelled") in pairwise(words) else ()
        _validator(*command, *clock).validate(json.loads(answer))


@functools.cache
def _validator(*words: str) -> Any:
    return jsonschema.Draft202012Validator(schema_of(*words))


def _commands(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, *words, name)
    if not hasattr(command, "commands"):
        yield words, command


def _prints_json(command: Any) -> bool:
    formats = [str(param.metavar).strip("<>").split("|") for param in command.params if "--format" in param.opts]
    return any("json" in names for names in formats) or any("--json" in param.opts for param in command.params)


def _has_schema(command: Any) -> bool:
    return any("--schema" in param.opts for param in command.params)
