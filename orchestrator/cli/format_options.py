# SPDX-License-Identifier: GPL-2.0-only
"""The options ``--format`` and ``--schema`` of commands that print results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.library.formats import Format, Formats
from orchestrator.plain_text import plain_line
from orchestrator.results.printed_json import json_schema

if TYPE_CHECKING:  # what prints: a command loads it when it prints
    pass


def format_option(formats: Formats, help_: str | None = None) -> Any:
    """The option ``--format`` of a command whose result has these formats."""

    def parsed(value: str | Format) -> Format:
        chosen = value if isinstance(value, Format) else formats.named(value)
        if chosen is None:
            from orchestrator.catalog.data import choices_sentence  # loads pydantic, which --help does without

            raise typer.BadParameter(f"found {plain_line(str(value))!r}; {choices_sentence(str(value), formats.names)}")
        return chosen

    def completed(incomplete: str) -> list[str]:
        return [name for name in formats.names if name.startswith(incomplete)]

    return typer.Option(
        "--format",
        parser=parsed,
        metavar=f"<{'|'.join(formats.names)}>",
        help=help_ or formats.help,
        autocompletion=completed,
    )


SHEETS = Formats("sheets")
SheetFormat = Annotated[Format, format_option(SHEETS)]
SCHEMA_HELP = "Print the JSON schema of what is printed for programs, and stop."


def schema(model: Callable[[], Any]) -> Any:
    """The option ``--schema`` of a command that prints JSON: ``model`` gives its model (``results.printed_json``)."""

    def print_it(is_given: bool) -> None:
        if is_given:
            print_schema(model())
            raise typer.Exit

    # Eager: it needs none of the command's arguments.
    return typer.Option("--schema", help=SCHEMA_HELP, callback=print_it, is_eager=True)


def print_schema(model: Any) -> None:
    """Print the JSON schema of a model, or of a list or union of models."""
    typer.echo(json.dumps(json_schema(model), indent=2))
