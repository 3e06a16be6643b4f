# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator list``: what an experiment can name, and the runs there are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Annotated

import typer

from orchestrator.cli.columns import print_columns
from orchestrator.cli.failures import expected_failures

Value = str | int | datetime | Sequence[str] | None
Rows = Iterable[Sequence[Value]]


class Subject(StrEnum):
    """What can be listed."""

    CPUS = "cpus"
    KERNELS = "kernels"
    PROBES = "probes"
    HANDLERS = "handlers"
    BENCHMARKS = "benchmarks"
    CLOCKS = "clocks"
    REFERENCES = "references"
    ABILITIES = "abilities"
    MARKERS = "markers"
    KPCACHE = "kpcache"
    SCOPES = "scopes"
    EVENTS = "events"
    RUNS = "runs"


_MORE = {
    Subject.CPUS: "... and any model of QEMU's own, by QEMU's name",
    Subject.KERNELS: "... and any build tree of your own, by its path",
    Subject.PROBES: "... and any module of your own, by its path; see abilities, markers and kpcache as well",
    Subject.BENCHMARKS: "... see scopes and events for whole-system ones (macro)",
}


@expected_failures
def show(
    what: Annotated[Subject, typer.Argument(help="What to list.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs: an array of objects.")] = False,
) -> None:
    """List what an experiment can name, the published tables, or this lab's runs."""
    names, rows = _LISTS[what]()
    if as_json:
        typer.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], default=_json_value, indent=1))
        return
    print_columns([name.replace("_", " ") for name in names], ([_text(value) for value in row] for row in rows))
    if what in _MORE:
        typer.echo(_MORE[what])


def _text(value: Value) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return f"{value.astimezone():%Y-%m-%d %H:%M}"
        case str() | int():
            return str(value)
        case _:
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
    from orchestrator.catalog.vocabulary import vocabulary

    return ("name", "what_a_hit_does"), vocabulary().handlers.items()


def _benchmarks() -> tuple[Sequence[str], Rows]:
    from orchestrator.benchmarks.system.workloads import macro_benchmarks
    from orchestrator.catalog.benchmarks import benchmarks

    calls: Rows = ((b.name, b.title, b.entries) for b in benchmarks().values())
    macro: Rows = (
        (name, f"{b.title} (macro: {{name: {name}}})", []) for name, b in macro_benchmarks().benchmarks.items()
    )
    return ("name", "title", "system_call_entries"), chain(calls, macro)


def _clocks() -> tuple[Sequence[str], Rows]:
    from orchestrator.catalog.vocabulary import vocabulary

    return ("name", "counts"), vocabulary().clocks.items()


def _references() -> tuple[Sequence[str], Rows]:
    from orchestrator.catalog.reference import reference_tables

    return ("id", "title", "cpu", "handler", "unit", "columns"), (
        (t.id, t.title, t.cpu, t.handler, t.unit, t.columns) for t in reference_tables().values()
    )


def _abilities() -> tuple[Sequence[str], Rows]:
    from orchestrator.benchmarks.calls.capabilities import ability_list, ability_names

    abilities = ability_list().abilities
    return ("name", "ability", "granted"), (
        (name, abilities[ability].title, "yes" if abilities[ability].probes[probe].grants else "no")
        for name, (probe, ability) in ability_names().items()
    )


def _markers() -> tuple[Sequence[str], Rows]:
    from orchestrator.benchmarks.markers.rows import PREFIX, marker_benchmarks

    document = marker_benchmarks()
    return ("name", "loop", "rounds"), (
        (f"{PREFIX}{name}", row.title, row.rounds) for name, row in document.rows.items()
    )


def _kpcache() -> tuple[Sequence[str], Rows]:
    from orchestrator.benchmarks.scaling.rows import kprobe_cache

    return ("name", "what", "each"), (
        (f"{name}.{row_name}", row.title, row.each)
        for name, benchmark in kprobe_cache().benchmarks.items()
        for row_name, row in benchmark.rows.items()
    )


def _scopes() -> tuple[Sequence[str], Rows]:
    from orchestrator.benchmarks.system.workloads import macro_benchmarks

    return ("name", "what_is_built", "guest_seconds_a_warm_run"), (
        (name, scope.title, scope.seconds) for name, scope in macro_benchmarks().scopes.items()
    )


def _events() -> tuple[Sequence[str], Rows]:
    from orchestrator.catalog.events import standard_events

    return ("name", "event", "group", "marker", "functions"), (
        (e.name, e.title, e.group, e.marker, e.functions or ["system calls' own"]) for e in standard_events().values()
    )


def _runs() -> tuple[Sequence[str], Rows]:
    from orchestrator.paths import lab_dir
    from orchestrator.results.store import FILE_NAME, Store

    names = ("run", "experiment", "started", "status", "ok", "failed", "other", "open", "directory")
    if not (lab_dir() / FILE_NAME).exists():
        return names, []
    rows: list[Sequence[Value]] = []
    with Store.open(lab_dir()) as store:
        counts = store.cell_counts()
        for run in store.runs():
            cells = counts.get(run.id, Counter())
            other = cells["skipped"] + cells["unsupported"]
            outcomes = (cells["ok"], cells["failed"], other, cells["planned"])
            started = datetime.fromisoformat(run.started)
            rows.append((run.id, run.experiment, started, run.status, *outcomes, str(run.directory)))
    return names, rows


_LISTS: Mapping[Subject, Callable[[], tuple[Sequence[str], Rows]]] = {
    Subject.CPUS: _cpus,
    Subject.KERNELS: _kernels,
    Subject.PROBES: _probes,
    Subject.HANDLERS: _handlers,
    Subject.BENCHMARKS: _benchmarks,
    Subject.CLOCKS: _clocks,
    Subject.REFERENCES: _references,
    Subject.ABILITIES: _abilities,
    Subject.MARKERS: _markers,
    Subject.KPCACHE: _kpcache,
    Subject.SCOPES: _scopes,
    Subject.EVENTS: _events,
    Subject.RUNS: _runs,
}
