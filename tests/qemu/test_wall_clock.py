# SPDX-License-Identifier: GPL-2.0-only
"""What does the wall clock claim, and what does it leave open?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.results.statistics import median, median_interval

pytestmark = pytest.mark.qemu

EXPERIMENT = Path(__file__).parent / "experiments" / "wall.yaml"


@pytest.mark.parametrize(
    ("kernel", "cpus"),
    [
        ("lab-i386-up", 1),
        pytest.param("lab-i386-smp", 2, marks=pytest.mark.kernels("lab-i386-smp")),
    ],
)
def test_nanoseconds_come_with_their_spread(tmp_path: Path, kernel: str, cpus: int) -> None:
    command = CommandLine(tmp_path)
    done = command.run("run", EXPERIMENT, "--set", f"kernels=[{kernel}]", "--set", f"machines.0.smp={cpus}")
    assert done.returncode == 0, done.stdout + done.stderr
    cells = command.cells()
    assert list(cells) == ["none", "jprobe", "djprobe"]
    for cell in cells.values():
        assert (cell.clock, cell.unit, len(cell.samples), cell.smp) == ("wall", "ns", 6, cpus)
        assert cell.value == median(cell.samples)
        assert cell.interval is not None
        assert cell.overhead is not None
        assert cell.interval[0] <= cell.overhead <= cell.interval[1]
        assert (cell.verdict == "none") == any("no verdict" in note for note in cell.notes)
    baseline, jprobe = cells["none"], cells["jprobe"]
    assert baseline.overhead == 0
    low, high = median_interval(baseline.samples)
    # Nanoseconds; a busy host makes the interval wide: its low end was -606 once.
    assert low < 1e6
    assert high > 10
    # Three traps more than double the time of a call, whatever the host is doing: no clock is asserted, only an order.
    assert jprobe.overhead is not None
    assert jprobe.verdict == "none" or jprobe.overhead > 0
    assert jprobe.evidence is not None
    assert (jprobe.evidence.hits, jprobe.evidence.int3) == (1000, 3000)
    if jprobe.parameters["accelerator"] == "tcg":
        assert "indication" in done.stdout
