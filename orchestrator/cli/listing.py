# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator list`` and ``doctor``: names for experiments, and checks of this host."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.catalog.data import unknown
from orchestrator.cli import completion, format_options, printing
from orchestrator.doctor import examine, exit_status, render
from orchestrator.errors import UsageError
from orchestrator.library.name_lists import all_lists, listed_rows
from orchestrator.results.printed_json import json_texts

_MORE = {
    "cpus": "... and any CPU model of QEMU, by QEMU's name",
    "kernels": "... and your own build trees, by path",
    "probes": "... and your own modules, by path, and bpftrace one-liners; see also capabilities, markers and kpcache\n"
    "which of them bpftrace makes of a name, on which kernel: configs/one-liners.yaml",
    "benchmarks": "... see scopes and events for whole systems",
}


def show(
    what: Annotated[
        str | None,
        typer.Argument(help="What to list; default: the names of all lists.", autocompletion=completion.lists),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: an array of objects.")] = False,
    _schema: Annotated[bool, format_options.schema(listed_rows)] = False,
) -> None:
    """List names for experiments, runs, baselines, or published tables."""
    lists = all_lists()
    if what is None:
        typer.echo("\n".join(lists))
        return
    if what not in lists:
        raise UsageError(unknown("list", what, lists))
    names, rows = lists[what].columns, lists[what].rows()
    if as_json:
        typer.echo(json_texts(lists[what].objects(), indent=1))
        return
    printing.print_columns(
        [name.replace("_", " ") for name in names], ([_text(value) for value in row] for row in rows)
    )
    if what in _MORE:
        typer.echo(_MORE[what])


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return f"{value.astimezone():%Y-%m-%d %H:%M}"
        case str() | int():
            return str(value)
        case _:
            assert isinstance(value, Sequence)
            return ", ".join(value)


def doctor() -> None:
    """Check this host: programs, packages, the speed of KVM, disk space.

    Exits with 3 if something is missing.
    """
    findings = examine()
    render(findings, Console())
    raise typer.Exit(exit_status(findings))
