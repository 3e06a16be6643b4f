# SPDX-License-Identifier: GPL-2.0-only
"""How long does the comparison of two runs of 1000 cells take, and how much memory?

Against the report of one of them in the same run: the host may be busy. Opt-in: ./lab test tests/benchmarks
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import RunIdentity, prepare_directory
from orchestrator.results.store import Store

CELLS = 1000
ROUNDS = 5
DEARER = 10
LARGEST_RATIO = 3.0
"""Of CPU seconds, to the JSON report of one run, which loads and prints half as many cells; the aim is 1 s idle."""
LARGEST_MEMORY = 300 << 10
"""KiB of resident memory."""
# The kernel's ru_maxrss of a process is at least that of the one that started it, before the exec; VmHWM is its own.
PROGRAM = """
import atexit, sys
from pathlib import Path
from orchestrator.cli.main import main
atexit.register(lambda: print(Path("/proc/self/status").read_text(), file=sys.stderr))
main()
"""


@dataclass(frozen=True)
class Spent:
    """What a command took: CPU seconds of its own, its largest resident size in KiB, how it ended, and its output."""

    seconds: float
    memory: int
    status: int
    output: bytes


def spent(lab: Path, *arguments: str) -> Spent:
    """Run a command to its end; ``wait4`` has the CPU time of it alone."""
    output, memory = lab / "output", lab / "memory"
    with output.open("wb") as file, memory.open("wb") as status_file:
        number = os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", PROGRAM, *arguments],
            {**os.environ, "ORCHESTRATOR_LAB": str(lab), "COLUMNS": "100"},
            file_actions=[(os.POSIX_SPAWN_DUP2, file.fileno(), 1), (os.POSIX_SPAWN_DUP2, status_file.fileno(), 2)],
        )
        _, status, used = os.wait4(number, 0)
    (largest,) = re.findall(r"^VmHWM:\s+(\d+) kB$", memory.read_text(), re.MULTILINE)
    seconds = used.ru_utime + used.ru_stime
    return Spent(seconds, int(largest), os.waitstatus_to_exitcode(status), output.read_bytes())


def a_cell(number: int, cost: float) -> CellRecord:
    """A cell as a quickstart's are, of a function of its own."""
    base = 400.0
    return CellRecord.model_validate(
        {
            "id": f"pentium4/debian-686/function{number}/kprobe/noop",
            "cpu": "pentium4",
            "smp": 1,
            "kernel": "debian-686",
            "probe": "kprobe",
            "handler": "noop",
            "benchmark": "syscall",
            "metric": "cost per call",
            "clock": "instructions",
            "unit": "instructions",
            "status": "ok",
            "samples": [cost] * 4,
            "value": cost,
            "overhead": cost - base,
            "interval": [cost - base] * 2,
            "parameters": {"at": f"function{number}", "call": "getpid", "arguments": "[]", "outcome": "always success"},
            "evidence": {
                "mechanism": "int3",
                "probe_bytes": "cc44240453",
                "original_bytes": "8b44240453",
                "hits": 5000,
                "calls": 5000,
                "restored": True,
                "clocksource": "tsc",
                "int3": 10000,
                "address": "0xc1093a15",
                "symbol": f"function{number}+0x5",
                "flag": "",
                "taint": 12288,
                "batches": 4,
                "disturbed": 0,
            },
        }
    )


def store_run(lab: Path, cells: Sequence[CellRecord]) -> str:
    """A complete run of these cells, with what it was made with and an experiment that names each of its points."""
    with Store.open(lab) as store:
        entry = store.begin_run("many", [one.id for one in cells], digest="d", provenance={})
        entry.directory.parent.mkdir(exist_ok=True)
        prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment="many"))
        for one in cells:
            store.record(entry.id, one)
        store.finish_run(entry.id, "complete")
    modules = {one.id: {"name": "lab_kprobe", "key": "k", "file_sha256": "0" * 64} for one in cells}
    boot = {"name": "boot1/guest1-pentium4-debian-686", "qemu": ["qemu-system-i386"], "modules": modules}
    content = {"sessions": [{"qemu": "7.2", "orchestrator": entry.id}], "boots": [boot]}
    (entry.directory / "provenance.json").write_text(json.dumps(content))
    points = ", ".join(str(one.parameters["at"]) for one in cells)
    (entry.directory / "experiment.yaml").write_text(f"name: many\nbudgets: {{'*': +1}}\npoints: [{points}]\n")
    return entry.id


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two runs of 1000 cells, of which ten cost more in the second."""
    folder = tmp_path_factory.mktemp("lab")
    before = [a_cell(number, 1000.0 + number) for number in range(CELLS)]
    store_run(folder, before)
    store_run(folder, [a_cell(number, 1000.0 + number + 5 * (number < DEARER)) for number in range(CELLS)])
    return folder


@pytest.mark.parametrize("arguments", [(), ("--format", "json"), ("--format", "markdown"), ("--only", "probe=kprobe")])
def test_two_runs_of_a_thousand_cells(arguments: Sequence[str], lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [
        (spent(lab, "report", "latest", "--format", "json"), spent(lab, "compare", "latest", *arguments))
        for _ in range(ROUNDS)
    ]
    assert {(floor.status, full.status) for floor, full in pairs} == {(0, 1)}
    assert all(b"function9" in full.output for _, full in pairs)
    low, high = (statistics.median(one.seconds for one in column) for column in zip(*pairs, strict=True))
    memory = max(full.memory for _, full in pairs)
    with capsys.disabled():
        print(
            f"\ncompare {' '.join(arguments)}: {high:.2f} s of CPU, {high / low:.1f} of a report's {low:.2f} s, ",
            end="",
        )
        print(f"{memory >> 10} MiB; load {os.getloadavg()[0]:.1f}")
    assert high < LARGEST_RATIO * low
    assert memory < LARGEST_MEMORY
