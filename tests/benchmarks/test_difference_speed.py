# SPDX-License-Identifier: GPL-2.0-only
"""How long does the difference of two stored cells take? Printed beside the command line's own floor; none is asserted.

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


@pytest.mark.qemu
@pytest.mark.parametrize("option", ["", "--symbol=__ia32_sys_gettimeofday"])
def test_the_difference_of_two_stored_cells(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against ``--version``, which starts and ends; the aim is half a second."""
    environment = {**os.environ, "ORCHESTRATOR_LAB": str(tmp_path)}

    def cost(*arguments: str) -> tuple[float, float]:
        """Seconds of a command, and its CPU seconds."""
        begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, *arguments], env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.perf_counter() - begun, used

    quickstart = str(data_dir("configs") / "quickstart.yaml")
    cost("run", quickstart, "--only", "kprobe", "--set", "benchmark.repeats=2", "--profile", "stacks")
    rest = [option] if option else []
    pairs = [(cost("--version"), cost("diff", "latest:none", "latest:kprobe", *rest)) for _ in range(ROUNDS)]
    floors, differences = zip(*pairs, strict=True)
    low, full = (statistics.median(wall for wall, _ in column) for column in (floors, differences))
    low_cpu, full_cpu = (statistics.median(used for _, used in column) for column in (floors, differences))
    with capsys.disabled():
        print(f"\ndiff {option}: floor {low:.2f} s, with it {full:.2f} s, ratio {full / low:.1f}")
        print(f"CPU: floor {low_cpu:.2f} s, with it {full_cpu:.2f} s, ratio {full_cpu / low_cpu:.1f}")
