# SPDX-License-Identifier: GPL-2.0-only
"""Where a page goes: a named file, the run's own directory, or stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.profile_forms import check_writable

if TYPE_CHECKING:
    from orchestrator.report.html.attachments import Page


def check_page_file(file: Path) -> None:
    """Refuse a file that a page cannot replace. Raises UsageError."""
    from orchestrator.errors import UsageError

    check_writable(file)
    if file.exists() and not file.is_file():
        raise UsageError("it is no regular file, and a page would replace it", where=str(file), hint="leave out --out")


def show_page(make: Callable[[str | None], Page], out: Path | None, default: Path) -> None:
    """Make a page, and write it to ``out``, or to stdout; to the file ``default`` where that is a terminal.

    ``make`` is as ``write_page_to`` has it. On stdout there is no folder.
    """
    if out is None and not sys.stdout.isatty():
        typer.echo(make(None).text, nl=False)
    else:
        write_page_to(out or default, make)


def write_page_to(file: Path, make: Callable[[str | None], Page]) -> None:
    """Make a page, and write it. ``make`` takes the name of the folder beside the page for what is too large for it."""
    from orchestrator.report.html.writing import beside, write_page

    page = make(beside(file))
    write_page(page, file)
    print(f"page: {file}", file=sys.stderr)
    if page.files:
        print(f"with {len(page.files)} files in {file.parent / page.folder}, which belongs to it", file=sys.stderr)
