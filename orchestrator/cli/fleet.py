# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator fleet``: many machines for one run."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.options import expected_failures, print_columns
from orchestrator.doctor import Finding, Status
from orchestrator.errors import LabError, UsageError
from orchestrator.fleet.hosts import load_hosts
from orchestrator.fleet.keeper import StartedFleet, end_fleet
from orchestrator.fleet.serve import Foreground, key_from_input
from orchestrator.fleet.state import (
    USUAL_NAME,
    Orders,
    Room,
    WorkerOrder,
    check_name,
    log_file,
    stored,
    worker_name,
)
from orchestrator.fleet.target import Target, check_reachable, made_key, need_dask, read_key, target, usual_key_file
from orchestrator.guest.machine import qemu_version
from orchestrator.plain_text import counted
from orchestrator.program import PROGRAM

if TYPE_CHECKING:  # they need the extra "fleet"
    from orchestrator.fleet.link import Surveyed
    from orchestrator.fleet.worker import Versions

app = typer.Typer(no_args_is_help=True, help="Many machines for one run.")

_MOST_WORKERS = 64

_Key = Annotated[
    Path | None,
    typer.Option(
        "--key", readable=False, metavar="FILE", help="The fleet's key; default: fleet/fleet.key beside the results."
    ),
]
_Guests = Annotated[
    int | None,
    typer.Option(min=1, max=1024, metavar="N", help="Guests side by side on each worker; default: the processors."),
]
_Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory for a worker's guests, such as 8G; default: the host's, less 1 GiB."),
]
_Name = Annotated[
    str, typer.Argument(metavar="[NAME]", help="A fleet that was started here.", autocompletion=options.fleets)
]


@app.command("keys")
@expected_failures
def keys(
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the key goes; default: fleet/fleet.key beside the results."),
    ] = None,
) -> None:
    """Make a fleet's key: a file for its owner only, which every machine of the fleet needs a copy of.

    Who has the key may run code on all machines of the fleet, and on the one that starts a run.
    """
    need_dask()
    file = made_key(out or usual_key_file())
    typer.echo(file)
    who = "who has this file may run code on all machines of the fleet"
    options.say(f"{who}: copy it only to machines of the fleet, by a way that you trust")


@app.command("up")
@expected_failures
def up(
    name: Annotated[str, typer.Option(metavar="NAME", help="The fleet's name here, for --fleet.")] = USUAL_NAME,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=_MOST_WORKERS,
            metavar="N",
            help="Workers on this machine, which share it; default: 1, with --hosts 0.",
        ),
    ] = None,
    guests: _Guests = None,
    memory: _Memory = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The one address to listen on; default: 127.0.0.1, this machine only."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The scheduler's port; default: one that is free.")
    ] = 0,
    hosts: Annotated[
        Path | None,
        typer.Option(readable=False, metavar="FILE", help="YAML: other hosts, on which workers are started over ssh."),
    ] = None,
    key: _Key = None,
) -> None:
    """Start a fleet, which goes on when this command has ended: a scheduler, and workers here or on other hosts.

    Returns when all workers have joined. Exits with 1 where some have not; where none has, nothing is left running.
    """
    check_name(name)
    need_dask()
    if hosts is not None and host is None:
        hint = "name the address of this machine that they reach: --host 192.0.2.1"
        raise UsageError("other hosts cannot reach a fleet on 127.0.0.1", where="--hosts", hint=hint)
    here = (0 if hosts is not None else 1) if workers is None else workers
    ordered = (*_workers_here(here, guests, memory), *([] if hosts is None else load_hosts(hosts)))
    _check_workers(ordered)
    file = (key or usual_key_file()).absolute()
    orders = Orders(
        name=name,
        key=read_key(file),
        key_file=str(file),
        host=host or "127.0.0.1",
        port=port,
        workers=ordered,
    )
    started = StartedFleet(orders)
    try:
        joined, failed = _told(started)
        if failed and not joined:
            raise LabError("no worker has joined: nothing was left running")
        started.let_stay()
    except BaseException:
        started.end()
        raise
    typer.echo(f"use it: {PROGRAM} run CONFIG --fleet {name}")
    raise typer.Exit(1 if failed else 0)


def _workers_here(number: int, guests: int | None, memory: str | None) -> list[WorkerOrder]:
    room = Room.of_host(max(1, number)).limited(guests, memory)
    host = worker_name(socket.gethostname())
    names = [host] if number == 1 else [f"{host}-{at}" for at in range(1, number + 1)]
    return [WorkerOrder(name=one, guests=room.guests, memory_mib=room.memory_mib) for one in names]


def _check_workers(ordered: tuple[WorkerOrder, ...]) -> None:
    names = [one.name for one in ordered]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        hint = "give the one of the file another name: name: ..."
        raise UsageError(f"two workers are called '{twice}'", where="--hosts", hint=hint)


def _told(started: StartedFleet) -> tuple[int, int]:
    """Tell what becomes of a fleet; how many workers have joined, and how many have not."""
    joined = failed = 0
    for report in started.reports():
        match report.kind:
            case "listening":
                options.say(f"scheduler: {report.text}")
            case "joined":
                joined += 1
                options.say(f"worker {report.name}: joined")
            case "failed":
                failed += 1
                quoted = "".join(f"\n    {line}" for line in report.detail)
                options.say(f"worker {report.name}: has not joined: {report.text}{quoted}")
    return joined, failed


@app.command("worker")
@expected_failures
def worker(
    scheduler: Annotated[str, typer.Argument(metavar="tls://HOST:PORT", help="The scheduler's address.")],
    key: _Key = None,
    key_from_stdin: Annotated[
        bool, typer.Option("--key-from-stdin", help="Read the key from standard input, and end when that is closed.")
    ] = False,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The worker's name; default: the host's.")] = None,
    guests: _Guests = None,
    memory: _Memory = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address to listen on; default: the one that leads to the scheduler."),
    ] = None,
) -> None:
    """Be a worker of a fleet, in the foreground, until the fleet ends or a signal comes: for batch systems and pods."""
    need_dask()
    if key is not None and key_from_stdin:
        raise UsageError("there are two keys", where="--key, --key-from-stdin", hint="leave one of them out")
    room = Room.of_host().limited(guests, memory)
    text = key_from_input() if key_from_stdin else read_key(key or usual_key_file())
    qemu_version()  # without QEMU no client would want this worker
    check_reachable(scheduler, text)
    name = name or worker_name(socket.gethostname())
    options.say(Foreground(scheduler, text, name, room, host, key_from_stdin).serve())


@app.command("status")
@expected_failures
def status(
    name: _Name = USUAL_NAME,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one JSON object.")] = False,
) -> None:
    """Show a fleet's scheduler and workers, with their room and the guests under way. Exits with 1 when one is missing.

    NAME may be an address, too: tls://HOST:PORT.
    """
    found = target(name)
    is_whole = print_status(found, as_json=as_json)
    raise typer.Exit(0 if is_whole else 1)


@app.command("down")
@expected_failures
def down(name: _Name = USUAL_NAME) -> None:
    """End a fleet that was started here: its scheduler, its workers, and all their guests."""
    state = stored(name)
    was_running = end_fleet(state)
    typer.echo(f"fleet '{name}' has ended" if was_running else f"fleet '{name}' had ended before; its file is removed")


# What ``fleet status`` prints of a fleet, and what ``doctor --fleet`` finds wrong with it.

_HEADER = ("worker", "guests", "running", "MiB", "host", "version", "python", "qemu", "problem")
_VERSION = re.compile(r"version (\S{1,40})")
_LITTLE_MB = 2000


def print_status(fleet: Target, *, as_json: bool) -> bool:
    """Print a fleet's scheduler and workers; whether all are there that it was to have."""
    from orchestrator.fleet.link import survey

    workers = survey(fleet)
    missing = _missing(fleet, workers)
    if as_json:
        typer.echo(json.dumps(_as_data(fleet, workers, missing), indent=2))
    else:
        name = "" if fleet.state is None else f" ({fleet.state.name}, kept by process {fleet.state.keeper})"
        typer.echo(f"scheduler {fleet.address}{name}")
        print_columns(
            _HEADER, [*map(_row, workers), *([one, *[""] * (len(_HEADER) - 2), "missing"] for one in missing)]
        )
    return not missing and bool(workers) and all(one.answer.offer is not None for one in workers)


def examine_fleet(fleet: Target) -> list[Finding]:
    """What a run would find wrong with the workers of a fleet, and what can be done about it."""
    from orchestrator.fleet.link import survey
    from orchestrator.fleet.worker import Versions

    workers = survey(fleet)
    here = Versions.here()
    findings = [Finding("scheduler", Status.OK, fleet.address)]
    for one in workers:
        findings += _examined(one, here)
    for name in _missing(fleet, workers):
        assert fleet.state is not None
        remedy = (
            f"{log_file(fleet.state.name)} says why; start the fleet again: {PROGRAM} fleet down, {PROGRAM} fleet up"
        )
        findings.append(Finding(name, Status.MISSING, "has not joined, or has left", remedy))
    if not workers:
        findings.append(Finding("workers", Status.MISSING, "there is none", f"{PROGRAM} fleet worker {fleet.address}"))
    return findings


def _examined(worker: Surveyed, here: Versions) -> Iterator[Finding]:
    answer, name = worker.answer, worker.name
    if answer.offer is None:
        yield Finding(name, Status.MISSING, answer.problem, f"on {answer.host or 'its host'}: {PROGRAM} doctor")
        return
    other = here.difference(answer.offer.versions)
    if other is not None:
        remedy = "check out the same commit there, and install the same QEMU and Python; then start the worker again"
        yield Finding(name, Status.MISSING, f"{other}: a run refuses it", remedy)
    if not answer.is_writable:
        yield Finding(name, Status.MISSING, f"{answer.cache} cannot be written to", "name another: ORCHESTRATOR_CACHE")
        return
    offer = answer.offer
    text = f"{counted(offer.guests, 'guest')}, {offer.memory_mib} MiB, QEMU {_qemu(offer.versions.qemu)}"
    room = f"{answer.free_mb} MB free in {answer.cache}"
    if answer.free_mb < _LITTLE_MB:
        yield Finding(name, Status.WARNING, f"{room}; better {_LITTLE_MB}", f"there: {PROGRAM} cache prune")
    elif other is None:
        yield Finding(name, Status.OK, f"{text}, {room}")


def _missing(fleet: Target, workers: Sequence[Surveyed]) -> list[str]:
    there = {one.name for one in workers}
    return [] if fleet.state is None else [name for name in fleet.state.workers if name not in there]


def _row(worker: Surveyed) -> Sequence[str]:
    offer, host = worker.answer.offer, worker.answer.host
    if offer is None:
        return (worker.name, "", str(worker.running), "", host, "", "", "", worker.answer.problem)
    versions = (offer.versions.project, offer.versions.python, _qemu(offer.versions.qemu))
    return (worker.name, str(offer.guests), str(worker.running), str(offer.memory_mib), host, *versions, "")


def _qemu(text: str) -> str:
    found = _VERSION.search(text)
    return found[1] if found else text


def _as_data(fleet: Target, workers: Sequence[Surveyed], missing: Sequence[str]) -> dict[str, object]:
    def facts(worker: Surveyed) -> dict[str, object]:
        answer = worker.answer
        offer = {"guests": None, "memory_mib": None, "versions": None}
        if answer.offer is not None:
            offer = answer.offer.model_dump(include=set(offer))
        known = {"name": worker.name, "address": worker.address, "host": answer.host, "running": worker.running}
        return {**known, **offer, "problem": answer.problem}

    return {
        "name": None if fleet.state is None else fleet.state.name,
        "scheduler": fleet.address,
        "keeper": None if fleet.state is None else fleet.state.keeper,
        "missing": list(missing),
        "workers": [facts(one) for one in workers],
    }
