# SPDX-License-Identifier: GPL-2.0-only
"""Does a cell say why the kernel did not optimise its kprobe, and stay failed?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

EXPERIMENT = """\
name: unoptimised
kernels: [lab-i386-up]
machines: [{cpu: pentium4}]
probes: [none, kprobe-optimized]
benchmark: {name: syscall, call: sched_yield, calls: 100, repeats: 2}
"""
"""Its function calls do_sched_yield() under the jump. For a named point the image would have been asked before."""


def test_the_reason_has_the_rule_that_forbids_the_jump(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT)
    command = CommandLine(tmp_path / "lab")
    assert command.run("run", file).returncode == 1
    cell = command.cells()["kprobe-optimized"]
    assert cell.status == "failed"
    assert cell.reason is not None
    assert "is not armed by the kernel's jump optimisation" in cell.reason
    assert "that is int3; the jump would cover +0x3, which kprobes do not boost" in cell.reason
