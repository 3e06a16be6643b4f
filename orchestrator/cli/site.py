# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator site``: the store as static pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.failures import expected_failures
from orchestrator.program import PROGRAM


@expected_failures
def site(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The site's folder: a new one, or one that a site was made in.")
    ],
    runs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Pages of the N newest runs only; default: of all.")
    ] = None,
) -> None:
    """Make pages of all results that work without a network: each run, and each metric with its history.

    Only pages whose results have changed are made again. Prints the first page's file.
    """
    from orchestrator.benchmarks.registry import reports
    from orchestrator.errors import UsageError
    from orchestrator.paths import lab_dir
    from orchestrator.report.site.building import build_site
    from orchestrator.results.store import FILE_NAME, Store

    lab = lab_dir()
    if not (lab / FILE_NAME).exists():
        raise UsageError("there is no run yet", where=str(lab), hint=f"Make one: {PROGRAM} run CONFIG")
    with Store.open(lab) as store, _display() as progress:
        built = build_site(store, directory, reports(), runs, progress)
    if built.lacking:
        print(f"warning: {built.lacking}: pip install 'probe-lab[statistics]'", file=sys.stderr)
    print(f"{built.pages} pages, {built.written} of them written, {built.removed} others removed", file=sys.stderr)
    typer.echo(built.index)


@contextmanager
def _display() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where that is a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("pages"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("pages", total=None)
        yield lambda done, pages: bar.update(task, completed=done, total=pages)
