# SPDX-License-Identifier: GPL-2.0-only
"""How long does a history take in a store of a thousand runs of a hundred cells, and how much memory?

Printed as ratios to ``list runs``, which reads the store too; what is asserted is what was found, and the memory.

Opt-in: ./lab test tests/benchmarks
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path

import generated_store
import pytest
from generated_store import COMMAND, Cost, cost

ROUNDS = 5
MOST_MEMORY = 300.0  # MB
EXACT = "generated:t03/kprobe"
TIMES = f"generated:{generated_store.WALL_TABLE}/kprobe"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    generated_store.generate(folder)
    return folder


@pytest.mark.parametrize(
    "arguments",
    [(EXACT,), (TIMES,), ("generated",), (), (EXACT, "--format", "json")],
    ids=["counts", "times", "all 100 metrics", "lately", "json"],
)
def test_a_history_of_a_thousand_runs(
    arguments: tuple[str, ...], lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The aim is a second for a metric, and 300 MB."""
    pairs = [(cost(lab, "list", "runs"), cost(lab, "history", *arguments)) for _ in range(ROUNDS)]
    floor, full = (
        Cost(*(statistics.median(getattr(one, name) for one in column) for name in ("seconds", "used", "memory")))
        for column in zip(*pairs, strict=True)
    )
    with capsys.disabled():
        print(f"\nhistory {' '.join(arguments)}: floor {floor.seconds:.2f} s, with it {full.seconds:.2f} s,", end=" ")
        print(f"ratio {full.seconds / floor.seconds:.1f}; CPU {floor.used:.2f} s, {full.used:.2f} s,", end=" ")
        print(f"ratio {full.used / floor.used:.1f}; {full.memory:.0f} MB")
    assert full.memory < MOST_MEMORY


@pytest.mark.parametrize(
    ("metric", "steps"), [(EXACT, generated_store.STEPS), (TIMES, generated_store.WALL_STEPS)], ids=["counts", "times"]
)
def test_the_steps_are_those_that_were_generated(metric: str, steps: dict[int, float], lab: Path) -> None:
    environment = {**os.environ, "ORCHESTRATOR_LAB": str(lab)}
    command = [*COMMAND, "history", metric, "--format", "json"]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    (found,) = json.loads(printed)["histories"]
    runs = [point["run"] for point in found["points"]]
    assert len(runs) == generated_store.RUNS
    places = {runs.index(step["after"]): step["change"] for step in found["steps"]}
    if found["exact"]:
        assert places == steps
        assert all(step["causes"] for step in found["steps"])
    else:
        # Of one series: in one of twenty a step of three deviations is found more than a point away.
        assert all(abs(place - known) <= 3 for place, known in zip(places, steps, strict=True))
