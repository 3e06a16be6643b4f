# SPDX-License-Identifier: GPL-2.0-only
"""Do guests whose clock moves on while they are idle agree in every instruction, on a host that is busy?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command_line import PATIENCE, CommandLine

from orchestrator.results.contract import RunRecord

KERNEL = "lab-i386-up"
AT_ONCE = 5
SLEEPS = 3000

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]

SLEEPING = f"""\
name: sleeping
kernels: [{KERNEL}]
machines: [{{cpu: pentium4}}]
probes: [none]
benchmark:
  name: command
  command: [/usr/bin/perl, -e, "select(undef, undef, undef, 0.002) for 1..{SLEEPS}"]
  repeats: 2
"""


@pytest.mark.nightly("ten guests at once, each of which sleeps 9,000 times")
def test_guests_that_sleep_on_a_busy_host_agree(tmp_path: Path) -> None:
    """Unless QEMU records, of ten such boots one or two differ with QEMU 7.2, and five with QEMU 10.0."""
    config = tmp_path / "sleeping.yaml"
    config.write_text(SLEEPING)
    labs = [CommandLine(tmp_path / f"lab{number}") for number in range(AT_ONCE)]
    started = [lab.start("run", config, "--jobs", "2", stderr=subprocess.PIPE) for lab in labs]
    for process in started:
        _, complaint = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, complaint
    answers = [lab.run("report", "latest", "--format", "json").stdout for lab in labs]
    cells = [RunRecord.model_validate_json(answer, strict=False).cells for answer in answers]
    sampled = {tuple((cell.samples, cell.parameters["cold"]) for cell in passed) for passed in cells}
    assert len(sampled) == 1
    # Each has slept: two milliseconds and what a tick adds.
    assert all(sample > SLEEPS * 2e6 for cell in cells[0] for sample in cell.samples)
