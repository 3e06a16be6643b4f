# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator list`` and ``doctor``: what an experiment can name, and what this host can do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.options import expected_failures, print_columns

if TYPE_CHECKING:
    from orchestrator.experiment.table import Listing


# ``orchestrator list``: what an experiment can name, and the runs there are.

Rows = Iterable[Sequence[object]]


_MORE = {
    "cpus": "... and any model of QEMU's own, by QEMU's name",
    "kernels": "... and any build tree of your own, by its path",
    "probes": "... and any module of your own, by its path; see capabilities, markers and kpcache as well",
    "benchmarks": "... see scopes and events for whole systems",
}
_ALIASES = {"abilities": "capabilities"}


@expected_failures
def show(
    what: Annotated[
        str | None,
        typer.Argument(help="What to list; without it, the lists there are.", autocompletion=options.lists),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: an array of objects.")] = False,
) -> None:
    """List what an experiment can name, the published tables, or this lab's runs."""
    from orchestrator.catalog.data import unknown
    from orchestrator.errors import UsageError

    name = _ALIASES.get(what or "", what)
    lists = _CATALOGUE if name in _CATALOGUE else all_lists()
    if name is None:
        typer.echo("\n".join(lists))
        return
    if name not in lists:
        raise UsageError(unknown("list", name, lists))
    names, rows = lists[name]()
    if as_json:
        typer.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], default=_json_value, indent=1))
        return
    print_columns([name.replace("_", " ") for name in names], ([_text(value) for value in row] for row in rows))
    if name in _MORE:
        typer.echo(_MORE[name])


def all_lists() -> Mapping[str, Callable[[], tuple[Sequence[str], Rows]]]:
    """What can be listed, by name: the catalogue, what each kind of benchmark adds, and the runs."""
    from orchestrator.benchmarks.registry import kinds

    def printable(listing: Listing) -> Callable[[], tuple[Sequence[str], Rows]]:
        return lambda: (listing.columns, listing.rows())

    of_kinds = {name: printable(listing) for kind in kinds() for name, listing in kind.lists().items()}
    return {**_CATALOGUE, **of_kinds, "runs": _runs}


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


def _json_value(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no place in a list")


def _cpus() -> tuple[Sequence[str], Rows]:
    from orchestrator.catalog.cpus import cpus

    return ("name", "title", "modes"), (
        (c.name, c.title, ["32 bit", "64 bit"] if c.long_mode else ["32 bit"]) for c in cpus().values()
    )


def _kernels() -> tuple[Sequence[str], Rows]:
    from orchestrator.catalog.kernels import kernels

    return ("name", "title", "architecture", "origin"), (
        (k.name, k.title, k.arch, k.origin) for k in kernels().values()
    )


def _probes() -> tuple[Sequence[str], Rows]:
    from orchestrator.catalog.probes import probes

    return ("name", "title", "mechanism", "int3_per_hit", "published_as"), (
        (p.name, p.title, p.mechanism, p.int3_per_hit, p.column) for p in probes().values()
    )


def _handlers() -> tuple[Sequence[str], Rows]:
    from orchestrator.catalog.words import vocabulary

    return ("name", "what_a_hit_does"), vocabulary().handlers.items()


def _benchmarks() -> tuple[Sequence[str], Rows]:
    from orchestrator.benchmarks.registry import kinds

    return ("name", "title", "system_call_entries", "kind"), (
        (name, one.title, one.entries, kind.name) for kind in kinds() for name, one in kind.benchmarks().items()
    )


def _clocks() -> tuple[Sequence[str], Rows]:
    from orchestrator.catalog.words import vocabulary

    return ("name", "counts"), vocabulary().clocks.items()


def _references() -> tuple[Sequence[str], Rows]:
    from orchestrator.catalog.reference import reference_tables

    return ("id", "title", "cpu", "handler", "unit", "columns"), (
        (t.id, t.title, t.cpu, t.handler, t.unit, t.columns) for t in reference_tables().values()
    )


def _runs() -> tuple[Sequence[str], Rows]:
    from orchestrator.paths import lab_dir
    from orchestrator.results.store import FILE_NAME, Store

    names = ("run", "experiment", "started", "status", "ok", "failed", "other", "open", "directory")
    if not (lab_dir() / FILE_NAME).exists():
        return names, []
    rows: list[Sequence[object]] = []
    with Store.open(lab_dir()) as store:
        counts = store.cell_counts()
        for run in store.runs():
            cells = counts.get(run.id, Counter())
            other = cells["skipped"] + cells["unsupported"]
            outcomes = (cells["ok"], cells["failed"], other, cells["planned"])
            started = datetime.fromisoformat(run.started)
            rows.append((run.id, run.experiment, started, run.status, *outcomes, str(run.directory)))
    return names, rows


_CATALOGUE: Mapping[str, Callable[[], tuple[Sequence[str], Rows]]] = {
    "cpus": _cpus,
    "kernels": _kernels,
    "probes": _probes,
    "handlers": _handlers,
    "benchmarks": _benchmarks,
    "clocks": _clocks,
    "references": _references,
}


# ``orchestrator doctor``: what this host can do, what is missing, how to get it.


@expected_failures
def doctor(
    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Examine a fleet's workers instead: what they have that is not as here. A name or tls://HOST:PORT.",
            autocompletion=options.fleets,
        ),
    ] = None,
) -> None:
    """Examine this host: programs, packages, KVM's real speed, disk. Exits with 3 when something is missing."""
    from rich.console import Console

    from orchestrator.doctor import examine, exit_status, render

    if fleet is None:
        findings = examine()
    else:
        from orchestrator.cli.fleet import examine_fleet
        from orchestrator.fleet.target import target

        findings = examine_fleet(target(fleet))
    render(findings, Console())
    raise typer.Exit(exit_status(findings))
