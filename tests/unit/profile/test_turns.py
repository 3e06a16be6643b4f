# SPDX-License-Identifier: GPL-2.0-only
"""Do the plugin's counts on several CPUs become figures of a call, and does damage show?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import EvidenceError
from orchestrator.profile.counted.turns import CpuCounts, TurnsBatch, read_turns, turns_of

SMALL = """\
cpus 2101 1
cpu 0 1010 10 20
cpu 1 1030 10 20
moved ffff8000 15
moved ffff9000 5
"""
LARGE = """\
cpus 10101 1
cpu 0 5010 50 100
cpu 1 5030 50 100
moved ffff8000 75
moved ffff9000 25
"""
BATCHES = [TurnsBatch(10, 2100), TurnsBatch(50, 10100), TurnsBatch(50, 10100, disturbed=1)]


def title(address: int) -> str:
    return "one" if address == 0xFFFF8000 else "other"


def written(folder: Path, text: str) -> Path:
    file = folder / "guest.counts"
    file.write_text(text)
    return file


def test_figures_are_of_a_call_without_what_a_batch_costs(tmp_path: Path) -> None:
    file = written(tmp_path, "earlier" + SMALL + LARGE + LARGE)
    first, second = turns_of(read_turns(file, len("earlier")), BATCHES, 2, title)
    assert first == second
    assert first.instructions == (100, 100)
    assert (first.moved, first.contended, first.lines) == (1, 2, 1)
    assert first.by_place == {"one": 0.75, "other": 0.25}


def test_one_cpu_may_execute_twice_as_much_as_another(tmp_path: Path) -> None:
    file = written(tmp_path, SMALL + LARGE + LARGE.replace("cpu 1 5030", "cpu 1 2505"))
    assert len(turns_of(read_turns(file, 0), BATCHES, 2, title)) == 2


def test_cpus_are_told_apart(tmp_path: Path) -> None:
    (region,) = read_turns(written(tmp_path, SMALL), 0)
    assert region.cpus == {0: CpuCounts(1010, 10, 20), 1: CpuCounts(1030, 10, 20)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL + LARGE, "QEMU counted in 2 batches, and 3 were timed"),
        (SMALL + LARGE + LARGE.replace("cpus 10101", "cpus 10103"), "counted 10102 instructions on all CPUs, and the"),
        (SMALL + LARGE + LARGE.replace("cpu 1 5030 50 100\n", ""), "QEMU counted on CPUs 0, and 2 made calls"),
        (
            SMALL + LARGE + LARGE.replace("cpu 1 5030", "cpu 1 2504"),
            "counted 2504 instructions on one CPU, and 5010 of the same calls on another",
        ),
        (
            SMALL + LARGE + "error more lines than there is room for\n",
            "QEMU could not count all instructions: more lines",
        ),
        ("cpu 0 1 1 1\n", "QEMU's counts are malformed"),
        (SMALL + "moved -1 2\n", "QEMU's counts are malformed"),
    ],
)
def test_damage_is_no_figure(tmp_path: Path, text: str, words: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(EvidenceError, match=words):
        turns_of(read_turns(file, 0), BATCHES, 2, title)
