# SPDX-License-Identifier: GPL-2.0-only
"""What does a profile take, and the difference of two? Printed beside the floor in the same run; none is asserted.

Opt-in: ./lab test tests/benchmarks
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.paths import data_dir

ROUNDS = 5
COMMAND = [sys.executable, "-c", "from orchestrator.cli.main import main; main()"]
QUICKSTART = str(data_dir("configs") / "quickstart.yaml")


def cost(lab: Path, *arguments: str) -> tuple[float, float]:
    """Seconds of a command, and the CPU seconds of it and its guests."""
    environment = {**os.environ, "ORCHESTRATOR_LAB": str(lab)}
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, *arguments], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, used


@pytest.mark.qemu
@pytest.mark.parametrize("part", ["symbols", "stacks", "classes"])
def test_the_quickstart_with_a_profile(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against the quickstart without one; the aim for symbols is 1.15 times its processor time."""

    def seconds(*options: str) -> float:
        return cost(tmp_path, "run", QUICKSTART, *options)[1]

    seconds(), seconds("--profile", part)  # whatever they save
    pairs = [(seconds(), seconds("--profile", part)) for _ in range(ROUNDS)]
    plain, profiled = (statistics.median(column) for column in zip(*pairs, strict=True))
    with capsys.disabled():
        print(f"\nprofile by {part}: CPU without {plain:.2f} s, with it {profiled:.2f} s, ratio {profiled / plain:.2f}")


@pytest.mark.qemu
@pytest.mark.parametrize("option", ["", "--symbol=__ia32_sys_gettimeofday"])
def test_the_difference_of_two_stored_cells(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against ``--version``, which starts and ends; the aim is half a second."""
    cost(tmp_path, "run", QUICKSTART, "--only", "kprobe", "--set", "benchmark.repeats=2", "--profile", "stacks")
    rest = [option] if option else []
    pairs = [
        (cost(tmp_path, "--version"), cost(tmp_path, "diff", "latest:none", "latest:kprobe", *rest))
        for _ in range(ROUNDS)
    ]
    floors, differences = zip(*pairs, strict=True)
    low, full = (statistics.median(wall for wall, _ in column) for column in (floors, differences))
    low_cpu, full_cpu = (statistics.median(used for _, used in column) for column in (floors, differences))
    with capsys.disabled():
        print(f"\ndiff {option}: floor {low:.2f} s, with it {full:.2f} s, ratio {full / low:.1f}")
        print(f"CPU: floor {low_cpu:.2f} s, with it {full_cpu:.2f} s, ratio {full_cpu / low_cpu:.1f}")
