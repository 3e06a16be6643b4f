# SPDX-License-Identifier: GPL-2.0-only
"""What commands share: options, completion, and the forms they print in."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from orchestrator.artifacts.cache import BuildContext, Cache
from orchestrator.cli.main import expected_failures as expected_failures
from orchestrator.cli.main import loaded as loaded
from orchestrator.errors import LabError, UsageError
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.plain_text import plain_line, plain_text
from orchestrator.program import PROGRAM
from orchestrator.report.html.frame import Page, beside, write_page
from orchestrator.report.sheet import Sheet
from orchestrator.report.text import print_sheets, render_sheets
from orchestrator.results.history import metrics as known_metrics
from orchestrator.results.store import FILE_NAME, Store
from orchestrator.steps import step_echo

T = TypeVar("T")

# What a shell offers for the beginning of a word; it begins a program each time, so nothing is loaded in advance.


def _words(source: str, words: Callable[[Any], Iterable[str]] = lambda found: found()) -> Callable[[str], list[str]]:
    """Complete by the ``words`` of ``MODULE:NAME``, by default a function's."""

    def complete(incomplete: str) -> list[str]:
        return [str(word) for word in words(loaded(source)) if word.startswith(incomplete)]

    return complete


def _stored(words: Callable[[Store], Iterable[object]]) -> Callable[[str], list[str]]:
    """Complete by what the lab's store has; by nothing where it cannot be read."""

    def complete(incomplete: str) -> list[str]:
        try:
            with opened_store() as store:
                found = () if store is None else words(store)
                return [word for word in map(str, found) if word.startswith(incomplete)]
        except (LabError, OSError):
            return []

    return complete


kernels = _words("catalog.kernels:kernels")
images = _words("catalog.images:images")
cpus = _words("catalog.cpus:cpus")
cost_tables = _words("model.cost_file:cost_files", lambda files: (path.stem for path in files()))
templates = _words("artifacts.module_source:templates")
cache_kinds = _words("artifacts.cache_entries:Kind", iter)
fleets = _words("fleet.state:known_fleets")
lists = _words("cli.listing:all_lists")
runs = _stored(lambda store: ["latest", *store.baselines(), *(entry.id for entry in store.runs())])
baselines = _stored(lambda store: store.baselines())
metrics = _stored(known_metrics)


@contextlib.contextmanager
def opened_store() -> Iterator[Store | None]:
    """The lab's store; None before its first run, since a command that only reads makes none."""
    if not (lab_dir() / FILE_NAME).exists():
        yield None
        return
    with Store.open(lab_dir()) as store:
        yield store


def no_run_yet() -> UsageError:
    """The error of a command that needs a store."""
    return UsageError("there is no run yet", where=str(lab_dir()), hint=f"Make one: {PROGRAM} run CONFIG")


# Options that several commands share, and what they open: ``--offline`` the cache, ``--verbose`` the log of steps.

Kernel = Annotated[str, typer.Option(help=f"Kernel name; see: {PROGRAM} list kernels.", autocompletion=kernels)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print each step and its duration on stderr.")]
Offline = Annotated[bool, typer.Option("--offline", help="Use only what is in the cache.")]
KernelConfig = Annotated[
    Path | None,
    typer.Option(
        "--kconfig", readable=False, metavar="FILE", help="A kernel tree's configuration; default: its own .config."
    ),
]
MakeVariables = Annotated[
    list[str] | None,
    typer.Option("--make", metavar="NAME=VALUE", help="A variable for a kernel tree's make: CC=gcc-12."),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value, as run does.")
]
ConfigOverrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="With --config: replace a value, as run does.")
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="FILTER", help="Only these cells: list12, probe=djprobe, or another name or pattern."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, max=64, metavar="N", help="Guests side by side; default: 1.")
]
Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="NAME",
        help="Let a fleet's workers run the guests: local, another name, or tls://HOST:PORT.",
        autocompletion=fleets,
    ),
]
OutputFolder = Annotated[Path | None, typer.Option("--out", help="Folder for the files.")]
Symbol = Annotated[str | None, typer.Option(help="Function to probe; default: the benchmark's, gettimeofday.")]
Offset = Annotated[int | None, typer.Option(help="Bytes behind the symbol; default: behind the ftrace nop.", min=0)]


def open_context(*, offline: bool) -> BuildContext:
    """The context of a command: the user's cache, progress and warnings on stderr."""
    return BuildContext(Cache(cache_dir()), offline, say, say)


def printed_steps(*, verbose: bool) -> contextlib.AbstractContextManager[None]:
    """Print the steps of what follows on stderr where the user asked for it."""
    return step_echo(say) if verbose else contextlib.nullcontext()


def say(text: str) -> None:
    """Print on stderr what goes on; a guest or a compiler may have written some of it."""
    print(plain_text(text), file=sys.stderr, flush=True)


def print_columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a header, each column as wide as its widest entry; numbers to the right."""
    table = [[plain_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *table]) for i in range(len(header))]
    typer.secho(_line(header, widths), bold=True)
    for row in table:
        typer.echo(_line(row, widths))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = [cell.replace(".", "", 1).isdecimal() for cell in row]
    cells = (cell.rjust(w) if n else cell.ljust(w) for cell, w, n in zip(row, widths, numbers, strict=True))
    return "  ".join(cells).rstrip()


Form = StrEnum("Form", "TABLE MARKDOWN JSON")
FormOption = Annotated[
    Form, typer.Option("--format", help="table: for people; markdown: the same for GitHub; json: for programs, whole.")
]
Limit = Annotated[
    int, typer.Option(min=0, metavar="N", help="List N symbols, and the rest in one line; 0: all of them.")
]
Depth = Annotated[int, typer.Option(min=0, max=256, metavar="N", help="With --tree: calls up to N below the program.")]
Share = Annotated[
    float,
    typer.Option(
        "--share", min=0, max=100, metavar="PERCENT", help="With --tree: calls of less than this in one line."
    ),
]


def check_one(given: Mapping[str, bool]) -> None:
    """Refuse two options of which each asks for something else; ``given`` says which are there. Raises UsageError."""
    there = [option for option, is_given in given.items() if is_given]
    if len(there) > 1:
        raise UsageError(f"{' and '.join(there)} do not go together", hint="name one of them")


def check_writable(*files: Path | None) -> None:
    """Refuse files that could not be written, before anything is measured for them. Raises UsageError."""
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


def print_profiles(
    title: str, form: Form, found: Sequence[T], sheets: Callable[[T], Iterable[Sheet]], content: Callable[[T], Any]
) -> None:
    """Print the tables of what was ``found``, under a ``title`` where the form has one; for programs the contents."""
    tables = [] if form is Form.JSON else [sheet for one in found for sheet in sheets(one)]
    match form:
        case Form.JSON:
            typer.echo(json.dumps([content(one) for one in found], indent=2))
        case Form.MARKDOWN:
            typer.echo(render_sheets(title, tables), nl=False)
        case Form.TABLE:
            print_sheets(tables, Console())


# Where a page goes: a named file, the run's own directory, or stdout.


def check_page_file(file: Path) -> None:
    """Refuse a file that a page cannot replace. Raises UsageError."""
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
    page = make(beside(file))
    write_page(page, file)
    print(f"page: {file}", file=sys.stderr)
    if page.files:
        print(f"with {len(page.files)} files in {file.parent / page.folder}, which belongs to it", file=sys.stderr)
