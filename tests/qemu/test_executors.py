# SPDX-License-Identifier: GPL-2.0-only
"""Do all executors keep one contract: the numbers of one guest at a time, Ctrl-C at any cell, and resuming?"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from fleet_faults import CELLS, MANY, going_on, measured_alone, qemus_of, records, samples
from fleet_processes import left_after, own_lab, supervisor_of, worker_processes

pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")
pytestmark = pytest.mark.qemu

THREADS, FLEET = ("--jobs", "2"), ("--fleet", "local")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def lab_with_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with own_lab(tmp_path_factory.mktemp("lab")) as command:
        up = command.run("fleet", "up", "--workers", "2", "--guests", "1", "--memory", "1G")
        assert up.returncode == 0, up.stderr
        yield command


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, ...]]:
    found = measured_alone(tmp_path_factory.mktemp("alone"), MANY)
    assert len(found) == CELLS
    return found


@pytest.mark.nightly("test_side_by_side.py interrupts threads every day, and its run goes on: ten seconds")
def test_an_interrupted_run_goes_on_to_the_numbers_of_one_guest_at_a_time(
    lab: CommandLine, expected: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    check_interrupted(lab, expected, tmp_path, THREADS)
    assert {cell.worker for cell in records(lab)} == {None}


@pytest.mark.nightly("an interrupted run on a fleet: half a minute")
def test_an_interrupted_run_on_a_fleet_goes_on_to_the_same_numbers(
    lab_with_fleet: CommandLine, expected: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    check_interrupted(lab_with_fleet, expected, tmp_path, FLEET)
    supervisor = supervisor_of(lab_with_fleet)
    assert left_after([one for worker in worker_processes(supervisor) for one in qemus_of(worker)]) == []
    assert None not in {cell.worker for cell in records(lab_with_fleet)}


def check_interrupted(
    lab: CommandLine, expected: dict[str, tuple[float, ...]], tmp_path: Path, executor: tuple[str, str]
) -> None:
    with going_on(lab, tmp_path, *executor) as run:
        run.reach("[2/8]")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 128 + signal.SIGINT, run.said.read_text()
    assert "Traceback" not in run.said.read_text()
    assert lab.qemus_after() == []
    before = samples(lab)
    assert 2 <= len(before) < CELLS
    with going_on(lab, tmp_path, *executor, "--resume") as run:
        assert run.end() == 0, run.said.read_text()
    assert samples(lab) == expected
    # Who has measured what: in each record, and of each guest in the run's provenance.
    workers = {cell.worker for cell in records(lab)}
    guests = json.loads((directory_of(lab) / "provenance.json").read_text())["boots"]
    assert {guest.get("worker") for guest in guests} >= workers


@pytest.mark.nightly("two runs of threads, and one on a fleet: fifteen seconds")
def test_each_boot_has_its_steps_in_the_run_s_log(
    lab: CommandLine, lab_with_fleet: CommandLine, tmp_path: Path
) -> None:
    logs = []
    with going_on(lab, tmp_path, *THREADS) as saving:
        assert saving.end() == 0, saving.said.read_text()  # all guests are restored from now on
    for command, executor in ((lab, THREADS), (lab_with_fleet, FLEET)):
        with going_on(command, tmp_path, *executor) as run:
            assert run.end() == 0, run.said.read_text()
        logs.append(steps_of((directory_of(command) / "lab.log").read_text()))
    threads, fleet = logs
    assert len(threads) == CELLS // 2
    assert fleet == threads


def steps_of(log: str) -> dict[str, list[str]]:
    """What a log says of each boot up to its last cell, without times: how a guest ends depends on what goes on."""
    found: dict[str, list[str]] = {}
    for line in log.splitlines():
        step = re.match(r" *\d+\.\d{3}  (boot\d+): +((?:boot|restore|measure|store) \S+)", line)
        if step is not None:
            found.setdefault(step[1], []).append(step[2])
    return found


def directory_of(lab: CommandLine) -> Path:
    """The directory of the latest run."""
    return lab.lab / "runs" / str(json.loads(lab.run("report", "latest", "--format", "json").stdout)["run"])
