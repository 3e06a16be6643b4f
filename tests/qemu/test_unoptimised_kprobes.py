# SPDX-License-Identifier: GPL-2.0-only
"""Does a cell say why the kernel did not optimise its kprobe, and is it known once a guest has said so?"""

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
"""Its function calls do_sched_yield() under the jump. No fault of the cell's."""


def test_a_function_that_takes_no_jump(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT)
    command = CommandLine(tmp_path / "lab")
    no_jump = "this kernel puts no jump in place of a kprobe's int3 here"
    for _ in range(2):  # by a guest, and from its answer
        assert command.run("run", file).returncode == 0
        cell = command.cells()["kprobe-optimized"]
        assert cell.status == "unsupported"
        assert (cell.reason or "").startswith(no_jump)
    assert f"; unsupported: {no_jump}" in command.run("run", file, "--dry-run").stdout
