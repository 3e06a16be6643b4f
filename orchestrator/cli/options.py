# SPDX-License-Identifier: GPL-2.0-only
"""Shared by commands: options, completion, output formats."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.errors import LabError, UsageError
from orchestrator.files import check_writable as check_writable
from orchestrator.library.formats import Format, Formats
from orchestrator.loading import loaded as loaded
from orchestrator.paths import cache_dir
from orchestrator.plain_text import plain_line, plain_text
from orchestrator.program import PROGRAM
from orchestrator.report.output import Output
from orchestrator.results.faults import storage_faults
from orchestrator.results.printed_json import Printed, json_schema, json_texts
from orchestrator.results.runs import opened_store as opened_store
from orchestrator.results.store import Store
from orchestrator.steps import step_echo

if TYPE_CHECKING:  # what prints: a command loads it when it prints
    from rich.console import Console

    from orchestrator.report.html.frame import Page
    from orchestrator.report.sheet import Sheet

# Shell completion. It starts a program each time, so modules are imported late.


def _words(
    source: str, words: Callable[[Any], Iterable[str]] = lambda function: function()
) -> Callable[[str], list[str]]:
    """Complete with the ``words`` of ``MODULE:NAME``, by default the result of a function."""

    def complete(incomplete: str) -> list[str]:
        return [str(word) for word in words(loaded(source)) if word.startswith(incomplete)]

    return complete


def _stored(words: Callable[[Store], Iterable[object]]) -> Callable[[str], list[str]]:
    """Complete with words of the lab's store, or with nothing if it cannot be read."""

    def complete(incomplete: str) -> list[str]:
        try:
            with opened_store() as store:
                known = () if store is None else words(store)
                return [word for word in map(str, known) if word.startswith(incomplete)]
        except (LabError, OSError):
            return []

    return complete


kernels = _words("catalog.kernels:kernels")
images = _words("catalog.image_recipes:images")
cpus = _words("catalog.cpus:cpus")
price_lists = _words("catalog.price_list:priced_cpus", lambda known: known())
templates = _words("artifacts.module_source:templates")
cache_kinds = _words("artifacts.cache_entries:Kind", iter)
fleets = _words("fleet.state:known_fleets")
lists = _words("library.listing:all_lists")
runs = _stored(lambda store: ["latest", *store.baselines(), *(entry.id for entry in store.runs())])
baselines = _stored(lambda store: store.baselines())
metrics = _stored(lambda store: loaded("results.history:metrics")(store))

Cpu = Annotated[
    str | None, typer.Option(help="CPU model; default: pentium4, or xeon-e5410 for 64 bit.", autocompletion=cpus)
]
Kernel = Annotated[str, typer.Option(help=f"Kernel name; see: {PROGRAM} list kernels.", autocompletion=kernels)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print each step and its duration on stderr.")]
Offline = Annotated[bool, typer.Option("--offline", help="Use only what is in the cache.")]
KernelConfig = Annotated[
    Path | None,
    typer.Option(
        "--kconfig", readable=False, metavar="FILE", help="The kernel tree's configuration; default: its .config."
    ),
]
MakeVariables = Annotated[
    list[str] | None,
    typer.Option("--make", metavar="NAME=VALUE", help="A make variable for the kernel tree: CC=gcc-12."),
]
Tree = Annotated[
    Path | None,
    typer.Option(
        "--tree", readable=False, metavar="DIR", help="A kernel's tree; default: the one around the current folder."
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value, as run does.")
]
ConfigOverrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="With --config: replace a value, as run does.")
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="FILTER", help="Only matching cells: list12, probe=djprobe, or another name or pattern."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, max=64, metavar="N", help="Parallel guests; default: 1.")
]
Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="NAME",
        help="Run the guests on a fleet: local, another name, or tls://HOST:PORT.",
        autocompletion=fleets,
    ),
]
OutputFolder = Annotated[Path | None, typer.Option("--out", help="Folder for the files.")]
Symbol = Annotated[str | None, typer.Option(help="Function to probe; default: the benchmark's, gettimeofday.")]
Offset = Annotated[int | None, typer.Option(help="Bytes after the symbol; default: after the ftrace nop.", min=0)]


def open_context(*, offline: bool) -> BuildContext:
    """The build context of a command: the user's cache, with progress and warnings on stderr."""
    return BuildContext(Cache(cache_dir()), offline, say, say)


def printed_steps(*, verbose: bool) -> contextlib.AbstractContextManager[None]:
    """Print the steps of the context on stderr if ``verbose``."""
    return step_echo(say) if verbose else contextlib.nullcontext()


@contextlib.contextmanager
def building(*, offline: bool, verbose: bool) -> Iterator[BuildContext]:
    """The build context of a command, whose steps are printed on stderr if ``verbose``."""
    with printed_steps(verbose=verbose):
        yield open_context(offline=offline)


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


Limit = Annotated[int, typer.Option(min=0, metavar="N", help="List N symbols, and the rest in one line; 0: list all.")]
Depth = Annotated[int, typer.Option(min=0, max=256, metavar="N", help="With --tree: calls up to N levels deep.")]
Share = Annotated[
    float,
    typer.Option(
        "--share", min=0, max=100, metavar="PERCENT", help="With --tree: group calls below this share in one line."
    ),
]


def check_one(given: Mapping[str, bool]) -> None:
    """Raise UsageError if more than one of these options is given."""
    together = [option for option, is_given in given.items() if is_given]
    if len(together) > 1:
        raise UsageError(f"{' and '.join(together)} exclude each other", hint="name one of them")


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
