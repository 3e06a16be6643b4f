# SPDX-License-Identifier: GPL-2.0-only
"""What does a fleet of two workers on this machine cost, beside `--jobs 2`; how soon is a worker's end noticed?

Whole commands are timed, beside each other; guests are saved before. Figures are printed; what is asserted is equality
of values, and ratios.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from command_line import CommandLine
from fleet_faults import going_on, measuring_worker, qemus_of, samples
from fleet_processes import family, own_lab, supervisor_of
from spent import spent

from orchestrator.fleet.state import process_start
from orchestrator.paths import data_dir

pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")
pytestmark = pytest.mark.qemu

ROUNDS = 3
RATIO = 1.15
"""Of the time of a run with `--fleet` to that with `--jobs 2`."""
GROWTH = 1.25
"""Of a client's largest size with a thousand cells to that with a hundred; with `--jobs 2` it is measured, too."""

WAYS = {"jobs": ("--jobs", "2"), "fleet": ("--fleet", "local")}

MACHINES = [
    {"cpu": cpu, "memory": memory}
    for memory, cpu in itertools.product(("256M", "320M", "384M", "448M"), ("pentium4", "athlon", "pentium-m"))
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with own_lab(tmp_path_factory.mktemp("lab")) as command:
        up = command.run("fleet", "up", "--workers", "2", "--guests", "1", "--memory", "4G")
        assert up.returncode == 0, up.stderr
        yield command


def elapsed(command: CommandLine, config: Path, *way: str) -> float:
    """Seconds by the host's clock of a run that must succeed."""
    begun = time.monotonic()
    answer = command.run_apart("run", config, *way)
    assert answer.returncode == 0, answer.stderr
    return time.monotonic() - begun


def boots_of(folder: Path, count: int, calls: int = 1) -> Path:
    """An experiment of so many short boots, each of two cells for each of so many system calls' repetitions."""
    table = {
        "kernels": ["debian-686"],
        "machines": MACHINES[:count],
        "probes": ["none", "kprobe"],
        "benchmark": {"name": "syscall", "call": "getppid", "calls": 1000},
    }
    tables = {f"part{number}": table for number in range(calls)}
    file = folder / f"boots-{count}-{calls}.yaml"
    file.write_text(yaml.safe_dump({"name": "boots", "tables": tables}))
    return file


def shown(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")


def test_a_published_document(fleet: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    config = data_dir("configs") / "djprobe-2005.yaml"
    found = {}
    for name, way in WAYS.items():
        elapsed(fleet, config, *way)
        found[name] = samples(fleet)
    assert found["fleet"] == found["jobs"]
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    for name in [*WAYS] * ROUNDS:
        taken[name].append(elapsed(fleet, config, *WAYS[name]))
    jobs, on_fleet = (statistics.median(taken[name]) for name in WAYS)
    shown(capsys, f"djprobe-2005: --jobs 2 {jobs:.2f} s, --fleet local {on_fleet:.2f} s, {on_fleet / jobs:.3f} times")
    assert on_fleet <= RATIO * jobs


def test_a_boot(fleet: CommandLine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few, many = boots_of(tmp_path, 4), boots_of(tmp_path, len(MACHINES))
    per_boot = {}
    for name, way in WAYS.items():
        elapsed(fleet, many, *way)
        elapsed(fleet, many, *way)
        once = [elapsed(fleet, many, *way) - elapsed(fleet, few, *way) for _ in range(2 * ROUNDS)]
        per_boot[name] = 1000 * statistics.median(once) / (len(MACHINES) - 4)
    difference = per_boot["fleet"] - per_boot["jobs"]
    figures = f"--jobs 2 {per_boot['jobs']:.0f} ms, --fleet local {per_boot['fleet']:.0f} ms, {difference:+.0f} ms"
    shown(capsys, f"a boot, two at once: {figures}")


def test_a_worker_that_dies(fleet: CommandLine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keeper, figures = supervisor_of(fleet), []
    for _ in range(ROUNDS):
        with going_on(fleet, tmp_path, "--fleet", "local") as run:
            run.reach("[1/8]")
            (worker,) = run.measures(lambda: measuring_worker(keeper))
            guests = qemus_of(worker)
            os.kill(worker, signal.SIGKILL)
            killed = time.monotonic()
            while any(process_start(guest) is not None for guest in guests):
                time.sleep(0.002)
            gone = time.monotonic() - killed
            run.reach("it has left the fleet")
            figures.append(
                f"its QEMU is gone in {gone:.3f} s, the run has noticed in {time.monotonic() - killed:.3f} s"
            )
            assert run.end() == 0, run.said.read_text()
    shown(capsys, "a worker is killed:\n  " + "\n  ".join(figures))


def test_the_memory_of_an_idle_fleet(fleet: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    """Proportional: pages that processes share count once."""
    total = 0
    for process in family(supervisor_of(fleet)):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    shown(capsys, f"two workers and their keeper, behind some runs: {total / 1000:.0f} MB")


def test_the_memory_of_a_client(fleet: CommandLine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configs = [boots_of(tmp_path, 10, 5), boots_of(tmp_path, 10, 50)]
    ratios = {}
    for name, way in WAYS.items():
        largest = []
        for config in configs:
            taken = spent(fleet.lab, "run", str(config), *way)
            assert taken.status == 0, taken.output
            largest.append(taken.memory / 1000)
        cells = json.loads(fleet.run("report", "latest", "--format", "json").stdout)["cells"]
        ratios[name] = largest[1] / largest[0]
        shown(capsys, f"{name}: {largest[0]:.0f} MB with a hundred cells, {largest[1]:.0f} MB with {len(cells)}")
    assert ratios["fleet"] <= GROWTH * max(1.0, ratios["jobs"])
