# SPDX-License-Identifier: GPL-2.0-only
"""What commands print: progress on stderr, columns, profiles, and results on stdout or in files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.errors import UsageError
from orchestrator.files import check_writable
from orchestrator.late_import import loaded
from orchestrator.library.formats import Format
from orchestrator.plain_text import plain_line, plain_text
from orchestrator.report.output import Output
from orchestrator.results.faults import storage_faults
from orchestrator.results.printed_json import Printed, json_texts

if TYPE_CHECKING:  # what prints: a command loads it when it prints
    from rich.console import Console

    from orchestrator.report.html.frame import Page
    from orchestrator.report.sheet import Sheet


def say(text: str) -> None:
    """Print progress on stderr, with control characters escaped: it may quote a guest or a compiler."""
    print(plain_text(text), file=sys.stderr, flush=True)


def print_columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a header in aligned columns, numbers to the right."""
    table = [[plain_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *table]) for i in range(len(header))]
    typer.secho(_line(header, widths), bold=True)
    for row in table:
        typer.echo(_line(row, widths))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = [cell.replace(".", "", 1).isdecimal() for cell in row]
    cells = (cell.rjust(w) if n else cell.ljust(w) for cell, w, n in zip(row, widths, numbers, strict=True))
    return "  ".join(cells).rstrip()


def print_profiles(title: str, form: Format, sheets: Iterable[Sheet], content: Iterable[Printed] = ()) -> None:
    """Print the ``sheets``, under a ``title`` in Markdown; or ``content`` as a list in JSON. Only one is iterated."""
    view = loaded("report.sheet_forms:SheetsView")(title, sheets, lambda: json_texts(content))
    form.write("sheets", view, StandardOutput())


def check_page_file(file: Path) -> None:
    """Raise UsageError for a file that a page cannot replace."""
    check_writable(file)
    if file.exists() and not file.is_file():
        raise UsageError("a page can only replace a regular file", where=str(file), hint="leave out --out")


class StandardOutput(Output):
    """The output of a command: the file ``out``, else stdout; a page has a file of its own if stdout is a terminal."""

    def __init__(self, out: Path | None = None) -> None:
        self._out = out

    @property
    def console(self) -> Console:
        from rich.console import Console

        return Console()

    def text(self, text: str) -> None:
        if self._out is None:
            typer.echo(text, nl=False)
            return
        with storage_faults(self._out):
            self._out.write_text(text, encoding="utf-8")

    def page(self, make: Callable[[str | None], Page], file: Path) -> None:
        if self._out is None and not sys.stdout.isatty():
            typer.echo(make(None).text, nl=False)
        else:
            write_page_to(self._out or file, make)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)


def write_page_to(file: Path, make: Callable[[str | None], Page]) -> None:
    """Make and write a page. ``make`` gets the name of the folder for the page's large files."""
    from orchestrator.report.html.frame import page_folder, write_page

    page = make(page_folder(file))
    write_page(page, file)
    print(f"page: {file}", file=sys.stderr)
    if page.files:
        print(f"the page's other {len(page.files)} files: {file.parent / page.folder}", file=sys.stderr)
