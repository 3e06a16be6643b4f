# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator fleet``: many machines for one run."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion, format_options, printing
from orchestrator.errors import LabError, UsageError
from orchestrator.fleet.hosts import load_hosts
from orchestrator.fleet.key import made_key, read_key, usual_key_file
from orchestrator.fleet.serve import key_from_input, serve
from orchestrator.fleet.state import (
    USUAL_NAME,
    SupervisorConfig,
    WorkerConfig,
    check_name,
    log_file,
    room,
    stored,
    worker_name,
)
from orchestrator.fleet.status import FleetStatus, WorkerStatus, fleet_status
from orchestrator.fleet.supervisor import StartedFleet, end_fleet
from orchestrator.fleet.target import Target, check_reachable, need_dask, target
from orchestrator.guest.qemu_facts import qemu_version
from orchestrator.program import PROGRAM

_Key = Annotated[
    Path | None,
    typer.Option(
        "--key", readable=False, metavar="FILE", help="The fleet's key; default: fleet/fleet.key in the results folder."
    ),
]
_Guests = Annotated[
    int | None,
    typer.Option(min=1, max=1024, metavar="N", help="Parallel guests on each worker; default: its processors."),
]
_Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory for a worker's guests, such as 8G; default: the host's, less 1 GiB."),
]
_Name = Annotated[
    str, typer.Argument(metavar="[NAME]", help="A fleet started on this host.", autocompletion=completion.fleets)
]


def keys(
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The key's file; default: fleet/fleet.key in the results folder."),
    ] = None,
) -> None:
    """Make a fleet's key, a private file that every machine of the fleet needs a copy of.

    Anyone with the key can run code on all machines of the fleet, and on the one that starts a run.
    """
    need_dask()
    file = made_key(out or usual_key_file())
    typer.echo(file)
    warning = "anyone with this file can run code on all machines of the fleet"
    printing.say(f"{warning}: copy it only to machines of the fleet, over a connection that you trust")


def up(
    name: Annotated[str, typer.Option(metavar="NAME", help="The fleet's name here, for --fleet.")] = USUAL_NAME,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, max=64, metavar="N", help="Workers on this machine, which share it; default: 1, or 0 with --hosts."
        ),
    ] = None,
    guests: _Guests = None,
    memory: _Memory = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address to listen on; default: 127.0.0.1, this machine only."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The scheduler's port; default: a free one.")
    ] = 0,
    hosts: Annotated[
        Path | None,
        typer.Option(readable=False, metavar="FILE", help="YAML file of other hosts to start workers on over ssh."),
    ] = None,
    key: _Key = None,
) -> None:
    """Start a fleet in the background: a scheduler, and workers on this or other hosts.

    Returns when all workers have joined. Exits with 1 if some have not; if none has, the fleet is ended.
    """
    check_name(name)
    need_dask()
    if hosts is not None and host is None:
        hint = "name an address of this machine that they can reach: --host 192.0.2.1"
        raise UsageError("other hosts cannot reach a fleet on 127.0.0.1", where="--hosts", hint=hint)
    here = (0 if hosts is not None else 1) if workers is None else workers
    workers_here, workers_there = _workers_here(here, guests, memory), [] if hosts is None else load_hosts(hosts)
    twice = {worker_config.name for worker_config in workers_here}.intersection(
        worker_config.name for worker_config in workers_there
    )
    if twice:
        hint = "give the one in the file another name: name: ..."
        raise UsageError(f"two workers are named '{min(twice)}'", where="--hosts", hint=hint)
    file = (key or usual_key_file()).absolute()
    ordered = (*workers_here, *workers_there)
    config = SupervisorConfig(
        name=name, key=read_key(file), key_file=str(file), host=host or "127.0.0.1", port=port, workers=ordered
    )
    started = StartedFleet(config)
    outcomes: set[str] = set()
    try:
        for report in started.reports():
            printing.say(report.text)
            outcomes.add(report.kind)
        if "failed" in outcomes and "joined" not in outcomes:
            raise LabError("no worker has joined, so the fleet was ended")
    except BaseException:
        started.end()
        raise
    typer.echo(f"use it: {PROGRAM} run CONFIG --fleet {name}")
    raise typer.Exit(1 if "failed" in outcomes else 0)


def _workers_here(number: int, guests: int | None, memory: str | None) -> list[WorkerConfig]:
    guests, mib = room(guests, memory, max(1, number))
    host = worker_name(socket.gethostname())
    names = [host] if number == 1 else [f"{host}-{at}" for at in range(1, number + 1)]
    return [WorkerConfig(name=name, guests=guests, memory=f"{mib}M") for name in names]


def worker(
    scheduler: Annotated[str, typer.Argument(metavar="tls://HOST:PORT", help="The scheduler's address.")],
    key: _Key = None,
    key_from_stdin: Annotated[
        bool, typer.Option("--key-from-stdin", help="Read the key from standard input, and end when it is closed.")
    ] = False,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The worker's name; default: the host's.")] = None,
    guests: _Guests = None,
    memory: _Memory = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address to listen on; default: the one facing the scheduler."),
    ] = None,
) -> None:
    """Run a worker of a fleet in the foreground, until the fleet ends or a signal comes: for batch systems and pods."""
    need_dask()
    if key is not None and key_from_stdin:
        raise UsageError("found two keys", where="--key, --key-from-stdin", hint="leave one of them out")
    offered = room(guests, memory)
    text = key_from_input() if key_from_stdin else read_key(key or usual_key_file())
    qemu_version()  # a worker is useless without QEMU
    check_reachable(scheduler, text)
    name = name or worker_name(socket.gethostname())
    printing.say(serve(scheduler, text, name, offered, host, ends_with_input=key_from_stdin))


def status(
    name: _Name = USUAL_NAME,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one JSON object.")] = False,
    _schema: Annotated[bool, format_options.schema(lambda: FleetStatus)] = False,
) -> None:
    """Show a fleet's scheduler and workers, their capacity, running guests, and problems.

    Exits with 1 if a worker is missing or has a problem. NAME may also be an address: tls://HOST:PORT.
    """
    raise typer.Exit(0 if print_status(target(name), as_json=as_json) else 1)


def down(name: _Name = USUAL_NAME) -> None:
    """End a fleet started on this host: its scheduler, its workers, and all their guests."""
    state = stored(name)
    was_running = end_fleet(state)
    typer.echo(f"fleet '{name}' has ended" if was_running else f"fleet '{name}' had ended before; its file is removed")


_HEADER = ("worker", "guests", "running", "MiB", "host", "version", "python", "qemu", "problem")
_VERSION = re.compile(r"version (\S{1,40})")


def print_status(fleet: Target, *, as_json: bool) -> bool:
    """Print a fleet's scheduler and workers; whether all expected workers are there, without problems."""
    state, current = fleet.state, fleet_status(fleet)
    if as_json:
        typer.echo(current.json_text())
    else:
        supervised = f" ({current.name}, supervised by process {current.keeper})" if state else ""
        typer.echo(f"scheduler {current.scheduler}{supervised}")
        gone = [[name, *[""] * (len(_HEADER) - 2), "missing"] for name in current.missing]
        printing.print_columns(_HEADER, [*map(_row, current.workers), *gone])
    if current.missing and state is not None:
        again = f"{PROGRAM} fleet down, {PROGRAM} fleet up"
        printing.say(f"{log_file(state.name)} says why a worker is missing; restart the fleet: {again}")
    if not current.workers:
        printing.say(f"the fleet has no worker; start one: {PROGRAM} fleet worker {fleet.address}")
    return current.is_whole


def _row(worker: WorkerStatus) -> Sequence[str]:
    columns: list[object] = [worker.name, worker.guests, worker.running, worker.memory_mib, worker.host]
    if worker.versions is None:
        columns += [None, None, ""]
    else:
        qemu = _VERSION.search(worker.versions.qemu)
        columns += [worker.versions.project, worker.versions.python, qemu[1] if qemu else worker.versions.qemu]
    return ["" if column is None else str(column) for column in (*columns, worker.problem)]
