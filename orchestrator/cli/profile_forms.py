# SPDX-License-Identifier: GPL-2.0-only
"""The forms in which profiles and differences are printed, and the options that say how much of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from orchestrator.report.sheet import Sheet

_DEEPEST = 256


class Form(StrEnum):
    """Forms of a profile, and of a difference between two."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


FormOption = Annotated[
    Form, typer.Option("--format", help="table: for people; markdown: the same for GitHub; json: for programs, whole.")
]
Limit = Annotated[
    int, typer.Option(min=0, metavar="N", help="List N symbols, and the rest in one line; 0: all of them.")
]
Depth = Annotated[
    int, typer.Option(min=0, max=_DEEPEST, metavar="N", help="With --tree: calls up to N below the program.")
]
Share = Annotated[
    float,
    typer.Option(
        "--share", min=0, max=100, metavar="PERCENT", help="With --tree: calls of less than this in one line."
    ),
]


def check_one(given: Mapping[str, bool]) -> None:
    """Refuse two options of which each asks for something else; ``given`` says which are there. Raises UsageError."""
    from orchestrator.errors import UsageError

    there = [option for option, is_given in given.items() if is_given]
    if len(there) > 1:
        raise UsageError(f"{' and '.join(there)} do not go together", hint="name one of them")


def check_writable(*files: Path | None) -> None:
    """Refuse files that could not be written, before anything is measured for them. Raises UsageError."""
    from orchestrator.errors import UsageError

    for file in files:
        if file is None:
            continue
        folder = file.absolute().parent
        if file.is_dir():
            raise UsageError("it is a folder, and a file is to be written", where=str(file))
        if not folder.is_dir():
            raise UsageError("there is no such folder to write a file in", where=str(folder))
        if not os.access(file if file.exists() else folder, os.W_OK):
            raise UsageError("it may not be written", where=str(file))


def print_profiles(title: str, form: Form, sheets: Callable[[], Sequence[Sheet]], content: Callable[[], Any]) -> None:
    """Print tables as the form has them, under a ``title`` where it has one; for programs the ``content``."""
    match form:
        case Form.JSON:
            from orchestrator.report.profile_json import text

            typer.echo(text(content()), nl=False)
        case Form.MARKDOWN:
            from orchestrator.report.markdown import render_sheets

            typer.echo(render_sheets(title, sheets()), nl=False)
        case Form.TABLE:
            from rich.console import Console

            from orchestrator.report.table import print_sheets

            print_sheets(sheets(), Console())
