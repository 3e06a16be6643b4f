# SPDX-License-Identifier: GPL-2.0-only
"""How long does the comparison of two runs of 100 and of 1000 cells take, and how much memory?

Against the report of one of them in the same run: the host may be busy. Opt-in: ./lab test tests/benchmarks
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
from generated_runs import a_cell, store_run
from spent import spent

MOST_CELLS = 1000
ROUNDS = 5
REGRESSED = 10
LARGEST_RATIO = 3.0
"""Of CPU seconds, to the JSON report of one run, which loads and prints half as many cells; the aim is 1 s idle."""
LARGEST_MEMORY = 300 << 10
"""KiB of resident memory."""


@pytest.fixture(scope="module", params=[100, MOST_CELLS], ids="{} cells".format)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two runs of so many cells, of which ten cost more in the second."""
    folder = tmp_path_factory.mktemp("lab")
    before = [a_cell(number, 1000.0 + number) for number in range(request.param)]
    store_run(folder, before)
    store_run(folder, [a_cell(number, 1000.0 + number + 5 * (number < REGRESSED)) for number in range(request.param)])
    return folder


@pytest.mark.parametrize(
    "arguments",
    [(), ("--format", "json"), ("--format", "markdown"), ("--only", "probe=kprobe"), ("--format", "html")],
    ids=" ".join,
)
def test_two_runs(arguments: Sequence[str], lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    if "html" not in arguments:  # matplotlib alone takes half a second
        assert high < LARGEST_RATIO * low
    assert memory < LARGEST_MEMORY
