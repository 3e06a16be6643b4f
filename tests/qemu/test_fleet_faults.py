# SPDX-License-Identifier: GPL-2.0-only
"""Does a run outlive what happens to its fleet, with the numbers of one process, or say why it cannot?

A worker is killed every day, in ``test_fleet_commands.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import PATIENCE, CommandLine
from fleet_faults import (
    CELLS,
    MANY,
    MORE,
    Proxy,
    going_on,
    measured_alone,
    measuring_worker,
    qemus_of,
    records,
    samples,
    stopped,
    wrong_qemu,
)
from fleet_processes import family, left_after, own_lab, supervisor_of, worker_processes
from full_disk import room

pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")
pytestmark = pytest.mark.qemu

LONG = pytest.mark.nightly("a run on a fleet for each fault")
SMALL = ("--guests", "1", "--memory", "1G")
WITH_MOUNT = Path(__file__).parents[1] / "with_mount.sh"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, ...]]:
    """What one process measures."""
    found = measured_alone(tmp_path_factory.mktemp("alone"), MANY)
    assert len(found) == CELLS
    return found


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, ...]]:
    """The same of twice as many boots."""
    return measured_alone(tmp_path_factory.mktemp("more"), MORE)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Two workers that are kept by one process, each with room for one guest."""
    with own_lab(tmp_path_factory.mktemp("lab")) as command:
        up = command.run("fleet", "up", "--workers", "2", *SMALL)
        assert up.returncode == 0, up.stderr
        yield command


@pytest.fixture
def fleet_to_kill(tmp_path: Path) -> Iterator[CommandLine]:
    with own_lab(tmp_path / "lab") as command:
        up = command.run("fleet", "up", "--workers", "2", *SMALL)
        assert up.returncode == 0, up.stderr
        yield command


def scheduler_of(command: CommandLine) -> str:
    return str(json.loads(command.run("fleet", "status", "--json").stdout)["scheduler"])


@contextmanager
def another_worker(command: CommandLine, name: str, *, before: tuple[str, ...] = (), **changes: str) -> Iterator[int]:
    """A worker in the foreground beside the kept ones, by its process."""
    environment = {**os.environ, "ORCHESTRATOR_LAB": str(command.lab), **command.environment, **changes}
    address = changes.pop("scheduler", scheduler_of(command))
    argv = [sys.executable, "-P", "-c", "from orchestrator.cli.main import main; main()"]
    words = [*before, *argv, "fleet", "worker", address, "--name", name, *SMALL]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert "has joined" in line, line + process.stderr.read()
            yield process.pid
        finally:
            process.terminate()
            try:
                process.communicate(timeout=PATIENCE)
            finally:
                process.kill()


@LONG
def test_a_worker_that_stops_is_given_up_and_what_it_says_later_is_dropped(
    fleet: CommandLine, expected: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    supervisor = supervisor_of(fleet)
    with going_on(fleet, tmp_path, "--fleet", "local") as run:
        run.reach("[1/8]")
        (worker,) = run.measures(lambda: measuring_worker(supervisor))
        with stopped(worker):
            assert run.end() == 0, run.said.read_text()
        assert "it has left the fleet" in run.said.read_text()
    assert samples(fleet) == expected
    # It comes back, or the supervisor replaces it; either way the next run has what it needs.
    with going_on(fleet, tmp_path, "--fleet", "local") as run:
        assert run.end() == 0, run.said.read_text()
    assert samples(fleet) == expected
    assert left_after([one for worker in worker_processes(supervisor) for one in qemus_of(worker)]) == []


@LONG
def test_a_killed_client_leaves_no_guest_and_a_run_to_go_on_with(
    fleet: CommandLine, expected: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    supervisor = supervisor_of(fleet)
    with going_on(fleet, tmp_path, "--fleet", "local") as run:
        run.reach("[2/8]")
        run.measures(lambda: measuring_worker(supervisor))
        guests = [one for worker in worker_processes(supervisor) for one in qemus_of(worker)]
        run.process.kill()
        assert left_after(guests) == []
    with going_on(fleet, tmp_path, "--fleet", "local", "--resume") as run:
        assert run.end() == 0, run.said.read_text()
    assert samples(fleet) == expected


@LONG
def test_with_the_scheduler_the_run_ends_and_goes_on_without_a_fleet(
    fleet_to_kill: CommandLine, expected: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    supervisor = supervisor_of(fleet_to_kill)
    with going_on(fleet_to_kill, tmp_path, "--fleet", "local") as run:
        run.reach("[2/8]")
        run.measures(lambda: measuring_worker(supervisor))
        processes = family(supervisor)
        os.kill(supervisor, signal.SIGKILL)
        assert left_after(processes) == []
        assert run.end() == 1
        said = run.said.read_text()
        assert "scheduler is gone" in said
        assert "--resume" in said
        assert "Traceback" not in said
    with going_on(fleet_to_kill, tmp_path, "--resume") as run:
        assert run.end() == 0, run.said.read_text()
    assert samples(fleet_to_kill) == expected


@LONG
def test_a_killed_worker_in_the_foreground_takes_its_guests_along(
    fleet: CommandLine, more: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    with another_worker(fleet, "third") as third, going_on(fleet, tmp_path, "--fleet", "local", text=MORE) as run:
        run.measures(lambda: measuring_worker(third))
        run.reach("third works")
        run.measures(lambda: measuring_worker(third))
        processes = family(third)[1:]
        os.kill(third, signal.SIGKILL)
        assert left_after(processes) == []
        assert run.end() == 0, run.said.read_text()
    assert samples(fleet) == more


@LONG
def test_a_worker_that_counts_wrong_gets_no_boot(
    fleet: CommandLine, more: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    folder, switch = wrong_qemu(tmp_path / "wrong")
    switch.touch()
    path = f"{folder}:{os.environ['PATH']}"
    with another_worker(fleet, "wrong", PATH=path), going_on(fleet, tmp_path, "--fleet", "local", text=MORE) as run:
        run.reach("wrong is not used: its counts differ from this machine's")
        assert run.end() == 0, run.said.read_text()
    assert samples(fleet) == more
    assert "wrong" not in {cell.worker for cell in records(fleet)}


@LONG
def test_a_run_says_what_a_worker_counted_wrong(fleet: CommandLine, tmp_path: Path) -> None:
    folder, switch = wrong_qemu(tmp_path / "wrong")
    path = f"{folder}:{os.environ['PATH']}"
    with another_worker(fleet, "wrong", PATH=path):
        with going_on(fleet, tmp_path, "--fleet", "local", text=MORE) as run:
            assert run.end() == 0, run.said.read_text()  # its guests are saved now, and it is quick to be admitted
        # With --fresh a guest is booted, and no saved one shows how long a loop took before.
        with going_on(fleet, tmp_path, "--fleet", "local", "--fresh", text=MORE) as run:
            run.reach("wrong works")
            switch.touch()
            assert run.end() == 1, run.said.read_text()
            said = run.said.read_text()
    assert "must be measured again: the counts of wrong differ from this machine's" in said, said
    _, _, again = said.partition("measure again:")
    wrong = [cell.id for cell in records(fleet) if cell.worker == "wrong"]
    assert any(id_ in again for id_ in wrong)


@LONG
def test_a_worker_whose_disk_is_full_does_not_take_part(
    fleet: CommandLine, more: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    target = tmp_path / "small"
    target.mkdir()
    mount = ("unshare", "--map-root-user", "--mount", "sh", str(WITH_MOUNT), "tmpfs", "size=70m", "small", str(target))
    with another_worker(fleet, "small", before=mount, ORCHESTRATOR_CACHE=str(target)):
        with going_on(fleet, tmp_path, "--fleet", "local", text=MORE) as run:
            run.reach("small is not used")
            assert run.end() == 0, run.said.read_text()
        assert "there is no room for" in run.said.read_text()
    assert samples(fleet) == more


@LONG
def test_a_disk_that_fills_up_costs_a_worker_its_boots(
    fleet: CommandLine, more: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    target = tmp_path / "small"
    target.mkdir()
    mount = ("unshare", "--map-root-user", "--mount", "sh", str(WITH_MOUNT), "tmpfs", "size=900m", "small", str(target))
    folders = {"ORCHESTRATOR_CACHE": str(target), "TMPDIR": str(target)}
    small = another_worker(fleet, "small", before=mount, **folders)
    with small as process, going_on(fleet, tmp_path, "--fleet", "local", text=MORE) as run:
        run.reach("small works")
        (worker,) = run.measures(lambda: worker_processes(process))
        with room(Path(f"/proc/{worker}/root{target}"), 200):
            run.reach("small is retired")
            assert run.end() == 0, run.said.read_text()
    assert samples(fleet) == more


@LONG
def test_a_worker_behind_a_network_that_stalls_is_given_up(
    fleet: CommandLine, more: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    port = int(scheduler_of(fleet).rpartition(":")[2])
    with (
        Proxy(port) as proxy,
        another_worker(fleet, "far", scheduler=proxy.address) as far,
        going_on(fleet, tmp_path, "--fleet", "local", text=MORE) as run,
    ):
        run.reach("far works")
        run.measures(lambda: measuring_worker(far))
        proxy.stall()
        assert run.end() == 0, run.said.read_text()
    assert samples(fleet) == more


@pytest.mark.nightly("a minute of silence")
def test_a_client_behind_a_network_that_stalls_says_so(fleet: CommandLine, tmp_path: Path) -> None:
    port = int(scheduler_of(fleet).rpartition(":")[2])
    with Proxy(port) as proxy, going_on(fleet, tmp_path, "--fleet", proxy.address) as run:
        run.reach("[1/8]")
        proxy.stall()
        assert run.end() == 1, run.said.read_text()
        assert "does not answer any more" in run.said.read_text()
    assert left_after([one for worker in worker_processes(supervisor_of(fleet)) for one in qemus_of(worker)]) == []
