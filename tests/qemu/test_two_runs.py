# SPDX-License-Identifier: GPL-2.0-only
"""Do two runs that share a cache and a store wait for each other where they must, and measure the same?"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from killed_run import KilledLab
from undisturbed_run import RUN, Undisturbed, made, values

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]


@pytest.mark.nightly("three runs from a cold cache")
def test_two_runs_at_once_make_everything_once_and_measure_the_same(tmp_path: Path) -> None:
    alone = Undisturbed(KilledLab.cold(tmp_path / "alone"))
    lab = KilledLab.cold(tmp_path / "shared")
    with ExitStack() as both:
        commands = [both.enter_context(lab.started(*RUN)) for _ in range(2)]
        assert [command.end() for command in commands] == [0, 0], [command.lines for command in commands]
    assert lab.left_after() == {}
    for run in (runs := lab.runs()):
        assert run.status == "complete"
        assert values(lab.cells(run)) == alone.values
    assert len(runs) == 2
    assert sum((made(command.lines) for command in commands), Counter()) == alone.made
    assert not any("locked" in line for command in commands for line in command.lines)
    assert lab.litter() == []
