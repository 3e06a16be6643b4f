# SPDX-License-Identifier: GPL-2.0-only
"""A process of its own that writes to a store, for the tests that kill one, starve one or run two at once.

Arguments: the store's folder and what to do with it. Results go to standard output.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from record_builders import cell

from orchestrator.errors import LabError
from orchestrator.results.contract import CellRecord
from orchestrator.results.store import Store

MANY = 2000


def numbered(index: int, samples: int) -> CellRecord:
    """Build the cell ``index`` of a long run."""
    return cell("djprobe", id=f"cell/{index}", samples=[462.0] * samples)


def write_runs(folder: Path, count: int) -> None:
    """Write whole runs, one after the other, and print their ids."""
    with Store.open(folder) as store:
        for _ in range(count):
            entry = store.begin_run("quickstart", ["cell/0"], digest="d", provenance={})
            store.record(entry.id, numbered(0, 4))
            store.finish_run(entry.id, "complete")
            print(entry.id)


def die_before(folder: Path, statement: str) -> None:
    """Record a second cell and be killed just before the SQL ``statement`` of that transaction runs."""
    with Store.open(folder) as store:
        entry = store.begin_run("quickstart", ["cell/0", "cell/1"], digest="d", provenance={})
        store.record(entry.id, numbered(0, 4))
        print(entry.id, flush=True)

        def kill(sql: str) -> None:
            if sql.startswith(statement):
                os.kill(os.getpid(), signal.SIGKILL)

        store._connection.set_trace_callback(kill)
        store.record(entry.id, numbered(1, MANY))


def list_runs(folder: Path) -> None:
    """Print the ids of all runs."""
    with Store.open(folder) as store:
        print(*(entry.id for entry in store.runs()), sep="\n")


def keep_running(folder: Path) -> None:
    """Begin a run, print its id, and work on it until standard input ends."""
    with Store.open(folder) as store:
        print(store.begin_run("quickstart", ["cell/0"], digest="d", provenance={}).id, flush=True)
        sys.stdin.read()


def fill(folder: Path, room: int) -> None:
    """Record cells until there is no room left (``room`` limits each file's bytes), and print the run and the error."""
    with Store.open(folder) as store:
        entry = store.begin_run("quickstart", [f"cell/{index}" for index in range(MANY)], digest="d", provenance={})
        if room:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        recorded = 0
        try:
            for index in range(MANY):
                store.record(entry.id, numbered(index, 100))
                recorded += 1
        except LabError as error:
            print(entry.id, recorded, error.exit_status, error, sep="\n")


if __name__ == "__main__":
    match sys.argv[2:]:
        case ["runs", count]:
            write_runs(Path(sys.argv[1]), int(count))
        case ["die-before", statement]:
            die_before(Path(sys.argv[1]), statement)
        case ["list"]:
            list_runs(Path(sys.argv[1]))
        case ["keep-running"]:
            keep_running(Path(sys.argv[1]))
        case ["fill", room]:
            fill(Path(sys.argv[1]), int(room))
