# SPDX-License-Identifier: GPL-2.0-only
"""Does a fleet on this machine start, measure what one process measures, listen to nobody else, and end wholly?"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import PATIENCE, QUICKSTART, REDUCED, CommandLine, FinishedRun
from fleet_faults import CELLS, MANY, going_on, measured_alone, measuring_worker, qemus_of, samples
from fleet_processes import (
    Socket,
    family,
    left_after,
    listening,
    of_process,
    own_lab,
    supervisor_of,
    temporary_files,
    worker_processes,
)

pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")

from orchestrator.fleet.key import read_key, security_of

LOOPBACK = "0100007F"
OTHER, OTHER_IN_PROC = "127.0.0.2", "0200007F"
SMALL = ("--guests", "1", "--memory", "1G")
IDLE_MB = 350


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with own_lab(tmp_path_factory.mktemp("lab")) as command:
        up = command.run("fleet", "up", "--workers", "2", *SMALL)
        assert up.returncode == 0, up.stderr
        assert up.stderr.count(": joined") == 2
        yield command
        processes = family(supervisor_of(command))
        down = command.run("fleet", "down")
        assert (down.returncode, down.stdout) == (0, "fleet 'local' has ended\n")
        assert left_after(processes) == []
        assert temporary_files(command) == []
        assert {path.suffix for path in (command.lab / "fleets").iterdir()} == {".log"}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[CommandLine]:
    """A fleet of one worker on another address."""
    with own_lab(tmp_path / "lab") as command:
        up = command.run("fleet", "up", "--host", OTHER, *SMALL)
        assert up.returncode == 0, up.stderr
        yield command


def idle_mb(pids: list[int]) -> float:
    lines = [line for pid in pids for line in of_process(pid, "smaps_rollup").splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"Pss:")) / 1024


def test_status_shows_workers_and_they_take_little_memory(two_workers: CommandLine) -> None:
    shown = two_workers.run("fleet", "status", "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    status = json.loads(shown.stdout)
    assert [(one["guests"], one["memory_mib"], one["running"]) for one in status["workers"]] == [(1, 1024, 0)] * 2
    assert (status["name"], status["missing"], status["keeper"]) == ("local", [], supervisor_of(two_workers))
    assert two_workers.run("fleet", "status", status["scheduler"]).returncode == 0
    assert idle_mb(family(supervisor_of(two_workers))) < IDLE_MB


def sockets_while_it_goes_on(run: subprocess.Popen[str], command: CommandLine, has_to_stop: Path | None) -> set[Socket]:
    """All on which the fleet's processes and their guests listen; the run is stopped at its first outcome."""
    sockets: set[Socket] = set()
    deadline = time.monotonic() + PATIENCE
    while run.poll() is None and time.monotonic() < deadline:
        sockets |= listening(family(supervisor_of(command)))
        if has_to_stop is not None and "[1/4]" in has_to_stop.read_text():
            run.send_signal(signal.SIGINT)
            has_to_stop = None
        time.sleep(0.3)
    return sockets


@pytest.mark.nightly("a run on a fleet that is interrupted, and one without: half a minute")
def test_an_interrupted_run_goes_on_and_counts_what_one_process_counts(
    two_workers: CommandLine, undisturbed: FinishedRun, tmp_path: Path
) -> None:
    arguments = ("run", QUICKSTART, *REDUCED, "--fleet", "local")
    said = tmp_path / "stderr"
    with said.open("w") as file, two_workers.start(*arguments, stderr=file.fileno()) as run:
        sockets = sockets_while_it_goes_on(run, two_workers, said)
    assert run.returncode == 128 + signal.SIGINT, said.read_text()
    with said.open("w") as file, two_workers.start(*arguments, "--resume", stderr=file.fileno()) as run:
        sockets |= sockets_while_it_goes_on(run, two_workers, None)
    assert run.returncode == 0, said.read_text()
    assert "distributed" not in said.read_text()
    cells, expected = two_workers.cells(), undisturbed.cells()
    assert {name: cell.samples for name, cell in cells.items()} == {
        name: cell.samples for name, cell in expected.items()
    }
    workers = {load["name"] for load in json.loads(two_workers.run("fleet", "status", "--json").stdout)["workers"]}
    assert {cell.worker for cell in cells.values()} <= workers
    assert {one.address for one in sockets} == {LOOPBACK}


def test_each_of_its_sockets_refuses_who_has_no_certificate(two_workers: CommandLine) -> None:
    key = read_key(two_workers.lab / "fleet" / "fleet.key")
    whole: ssl.SSLContext = security_of(key).get_connection_args("client")["ssl_context"]
    assert len(workers_of(two_workers, 2)) == 2, "on a busy host one may have been given up, and is replaced"
    without = ssl.create_default_context(cadata=key.partition("-----BEGIN PRIVATE KEY")[0])
    without.check_hostname = False
    deadline = time.monotonic() + PATIENCE  # one that was given up, and is replaced
    while len(sockets := listening(family(supervisor_of(two_workers)))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert {one.address for one in sockets} == {LOOPBACK}
    assert len(sockets) == 3  # the scheduler, two workers
    for one in sockets:
        assert answer(one.port, whole), "who has the key is spoken to"
        assert answer(one.port, without) == b""
        assert answer(one.port, None) == b""


def answer(port: int, context: ssl.SSLContext | None, host: str = "127.0.0.1") -> bytes:
    """What a server says first; nothing where it closes the connection, or refuses it."""
    try:
        with socket.create_connection((host, port), PATIENCE) as plain:
            if context is None:
                plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
                # A TLS alert, which begins with 21, refuses.
                return plain.recv(1).strip(b"\x15")
            with context.wrap_socket(plain) as connection:
                return connection.recv(1)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_a_worker_that_the_scheduler_gave_up_is_replaced(two_workers: CommandLine) -> None:
    from distributed import Client

    before = {one["name"]: one for one in workers_of(two_workers, 2)}
    first = next(iter(before))
    scheduler = json.loads(two_workers.run("fleet", "status", "--json").stdout)["scheduler"]
    security = security_of(read_key(two_workers.lab / "fleet" / "fleet.key"))
    processes = spawned(two_workers)
    assert len(processes) == 2
    with Client(scheduler, security=security, set_as_default=False) as client:
        client.retire_workers(names=[first], close_workers=True)
    deadline = time.monotonic() + PATIENCE
    while len(processes & spawned(two_workers)) == 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(processes & spawned(two_workers)) == 1
    after = {one["name"]: one for one in workers_of(two_workers, 2)}
    assert {name: {**one, "address": None} for name, one in after.items()} == {
        name: {**one, "address": None} for name, one in before.items()
    }
    assert [name for name in before if after[name]["address"] != before[name]["address"]] == [first]
    assert "another one is started" in (two_workers.lab / "fleets" / "local.log").read_text()


def spawned(command: CommandLine) -> set[int]:
    """The processes of a fleet's workers."""
    return set(worker_processes(supervisor_of(command)))


def workers_of(command: CommandLine, count: int | None = None) -> list[dict[str, object]]:
    """A fleet's workers as its status shows them: when there are as many, which takes a busy host its time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        workers: list[dict[str, object]] = json.loads(command.run("fleet", "status", "--json").stdout)["workers"]
        if count in (None, len(workers)) or time.monotonic() > deadline:
            return workers


def test_it_listens_where_it_is_told_ends_with_its_supervisor_and_leaves_nothing(elsewhere: CommandLine) -> None:
    sockets = listening(family(supervisor_of(elsewhere)))
    assert {one.address for one in sockets} == {OTHER_IN_PROC}
    assert len(sockets) == 2  # the scheduler, a worker
    whole = security_of(read_key(elsewhere.lab / "fleet" / "fleet.key")).get_connection_args("client")["ssl_context"]
    for one in sockets:
        assert answer(one.port, whole, OTHER), "who has the key is spoken to"
        assert answer(one.port, None, OTHER) == b""

    supervisor = supervisor_of(elsewhere)
    processes = family(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    assert left_after(processes) == []
    shown = elsewhere.run("fleet", "status")
    assert (shown.returncode, "fleet 'local' has ended" in shown.stderr) == (1, True)
    assert elsewhere.run("fleet", "down").returncode == 0
    assert temporary_files(elsewhere) == []


@contextmanager
def in_the_foreground(command: CommandLine, scheduler: str) -> Iterator[subprocess.Popen[str]]:
    arguments = ("fleet", "worker", scheduler, "--name", "third", *SMALL)
    with command.start(*arguments, stderr=subprocess.PIPE) as worker:
        try:
            yield worker
        finally:
            worker.terminate()


def test_a_worker_in_the_foreground_joins_shows_and_ends_on_a_signal(two_workers: CommandLine) -> None:
    scheduler = json.loads(two_workers.run("fleet", "status", "--json").stdout)["scheduler"]
    with in_the_foreground(two_workers, scheduler) as worker:
        assert worker.stderr is not None
        assert "worker third has joined" in worker.stderr.readline()
        twice = two_workers.run("fleet", "worker", scheduler, "--name", "third", *SMALL)
        assert (twice.returncode, "a worker called 'third' already" in twice.stderr) == (2, True), twice.stderr
        shown = json.loads(two_workers.run("fleet", "status", "--json").stdout)
        assert "third" in [one["name"] for one in shown["workers"]]
        processes = family(worker.pid)
        assert {one.address for one in listening(processes)} == {LOOPBACK}
        worker.terminate()
        assert (worker.wait(PATIENCE), worker.stderr.read()) == (128 + signal.SIGTERM, "stopped by SIGTERM\n")
    assert left_after(processes) == []


def test_a_killed_worker_costs_a_boot_and_nothing_else(two_workers: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    expected = measured_alone(tmp_path / "alone", MANY)
    assert len(expected) == CELLS
    assert len(workers_of(two_workers, 2)) == 2
    supervisor = supervisor_of(two_workers)
    with going_on(two_workers, tmp_path, "--fleet", "local") as run:
        run.reach("[1/8]")
        run.reach("-2 works: ")  # it is the run's worker only once its counts are checked
        (worker,) = run.measures(lambda: measuring_worker(supervisor))
        guests = qemus_of(worker)
        os.kill(worker, signal.SIGKILL)
        assert left_after(guests) == []
        assert run.end() == 0, run.said.read_text()
    assert samples(two_workers) == expected
    assert "it has left the fleet" in run.said.read_text()
    log = max((two_workers.lab / "runs").glob("*/lab.log"), key=lambda file: file.stat().st_mtime)
    steps = " ".join(log.read_text().split())
    assert [cell for cell in expected if f": measure {cell} (" not in steps] == []
