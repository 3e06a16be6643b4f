# SPDX-License-Identifier: GPL-2.0-only
"""The page of the command line: each command with its arguments, options, examples, and the exit statuses."""

from __future__ import annotations

import datetime
import inspect
import re
import signal
import types
import typing
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from orchestrator.cli.main import app, examples
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.library.formats import Format
from orchestrator.program import PROGRAM

from .markdown import Undescribed, described, fenced, filled, first_sentence, inline, link, listed, prose, table
from .markdown import page as whole_page

_CALLED = "./lab"
_CODE = re.compile(r"(?<![\w`-])(?:--(?:format|channel) [a-z]+|--[a-z][a-z-]*[a-z]|\./lab (?:list \w+|\w+ list))")
_HIDDEN = ("help", "install_completion", "show_completion")
_VALUES = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH", datetime.datetime: "DATE"}


def page() -> str:
    """All commands."""
    root: Any = typer.main.get_command(app)
    commands = dict(_commands(root))
    overview = [(link(_heading(name)), inline(_first(name, command))) for name, command in commands.items()]
    return whole_page(
        "Commands",
        [
            filled(
                "Where the package is installed, `./lab` is `orchestrator`. `--help` of a command prints the same. A "
                "checkout's `./lab test` runs tests, the lab's or your own: [testing](../testing.md)."
            ),
            table(("command", "what"), overview),
            *_without_command(root),
            *_statuses(),
            *(part for name, command in commands.items() for part in _section(name, command)),
        ],
    )


def _commands(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(names), command
        return
    for name, command_below in below.items():
        yield from _commands(command_below, *names, name)


def _heading(name: str) -> str:
    return f"lab {name}"


def _help(name: str, command: Any) -> str:
    if not command.help:
        raise Undescribed(f"command {name} has no docstring")
    return _as_called(str(command.help))


def _first(name: str, command: Any) -> str:
    return first_sentence(_help(name, command))


def _as_called(text: str) -> str:
    """Help as in a checkout: how the program was called this time is nobody else's. Options and commands are code."""
    return _CODE.sub(r"``\g<0>``", text.replace(f"{PROGRAM} ", f"{_CALLED} "))


def _without_command(root: Any) -> Iterator[str]:
    yield "## Without a command"
    rows = [(f"`{'`, `'.join(param.opts)}`", inline(param.help)) for param in root.params]
    yield table(("option", "what"), [*rows, ("`-h`, `--help`", "Print what there is; of every command, too.")])


def _statuses() -> Iterator[str]:
    yield "## Exit statuses"
    rows = [
        ("0", "Done."),
        *((str(error.exit_status), inline(first_sentence(described(error, error.__name__)))) for error in _ERRORS),
    ]
    stopped = [
        (str(128 + number), f"Stopped by {number.name}; guests are ended and results kept.") for number in _SIGNALS
    ]
    yield table(("status", "what"), [*rows, *stopped])
    yield filled(
        """What went wrong is a sentence on stderr. Where a command has a status of its own, its description says so.
        Results go to stdout, progress and errors to stderr."""
    )


_ERRORS = (LabError, UsageError, HostError)
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def _section(name: str, command: Any) -> Iterator[str]:
    yield f"## {_heading(name)}"
    yield prose(_help(name, command))
    arguments = [param for param in command.params if not param.opts[0].startswith("-")]
    options = [param for param in command.params if param.opts[0].startswith("-") and param.name not in _HIDDEN]
    usage = [_CALLED, name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)]
    yield fenced("\n".join(f"{_CALLED} {example}" for example in examples()[name]), "sh")
    yield f"Usage: `{' '.join(usage)}`"
    function = inspect.unwrap(command.callback, stop=lambda wrapped: hasattr(wrapped, "__signature__"))
    hints = typing.get_type_hints(function)
    if arguments:
        yield table(
            ("argument", "what"),
            [(f"`{_argument(argument)}`", _meaning(name, argument, hints)) for argument in arguments],
        )
    if options:
        yield table(("option", "what"), [(_option(option, hints), _meaning(name, option, hints)) for option in options])


def _argument(parameter: Any) -> str:
    """An argument as it is written: in brackets where it may be left out."""
    metavar = str(parameter.metavar or parameter.name.upper())
    return metavar if parameter.required or metavar.startswith("[") else f"[{metavar}]"


def _option(parameter: Any, hints: dict[str, Any]) -> str:
    spellings = "`, `".join(sorted(parameter.opts, key=len))
    kind = _kind(hints[parameter.name])
    if kind is bool:
        return f"`{spellings}`"
    value = "WORD" if _words(kind, parameter) else parameter.metavar or _VALUES[kind]
    return f"`{spellings} {value}`"


def _meaning(name: str, parameter: Any, hints: dict[str, Any]) -> str:
    """What an argument or option does, its words or bounds, its default, and whether it may be given again."""
    if not parameter.help:
        raise Undescribed(f"command {name}: {parameter.opts[0]} has no help")
    kind = _kind(hints[parameter.name])
    sentences = [inline(_as_called(parameter.help))]
    if words := _words(kind, parameter):
        sentences.append(f"One of {listed(words)}.")
    low, high = parameter.min, parameter.max
    if low is not None or high is not None:
        sentences.append(f"{low} to {high}." if high is not None else f"At least {low}.")
    default = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    default = default.value if isinstance(default, Enum) else str(default) if isinstance(default, Format) else default
    default = f"{default:g}" if isinstance(default, float) else default
    if parameter.required and parameter.opts[0].startswith("-"):
        sentences.append("Required.")
    elif default not in (None, False, [], ()):
        sentences.append(f"Default: `{default}`.")
    if getattr(parameter, "multiple", False) and "repeated" not in parameter.help:
        sentences.append("May be repeated.")
    return " ".join(sentences)


def _words(kind: type, parameter: Any) -> Sequence[str]:
    """The words that a parameter takes; none where it takes others, too."""
    if kind is Format:
        return str(parameter.metavar).strip("<>").split("|")
    return [str(word.value) for word in kind] if issubclass(kind, Enum) else []


def _kind(hint: Any) -> type:
    """The type of a value: of a list its items', of what may be missing the rest."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _kind(next(arg for arg in typing.get_args(hint) if arg is not type(None)))
    if origin in (list, tuple):
        return _kind(typing.get_args(hint)[0])
    assert isinstance(hint, type)
    return hint
