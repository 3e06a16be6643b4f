# SPDX-License-Identifier: GPL-2.0-only
"""What does the page of a run of 1000 cells cost: CPU seconds, bytes, memory?

Beside the JSON of the same run, and beside junit2html, which makes a page of the run's JUnit report: it has a line for
each cell, and none of the evidence. Size and memory are asserted, times are printed.

Opt-in: ./lab test tests/benchmarks
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from generated_runs import GUEST, a_cell, as_it_is, store_run, with_profile
from spent import Spent, spent, spent_by

CELLS = 1000
ROUNDS = 3
PEER = "junit2html==31.1.4"
LARGEST_PAGE = 5_000_000  # bytes
LARGEST_MEMORY = 300 << 10  # KiB
CONSOLE = "".join(f"[{line / 100:10.2f}] something is said in line {line}\n" for line in range(10_000))
"""Some 400 kB."""


@pytest.fixture(scope="module", params=[as_it_is, with_profile], ids=["plain", "profiles"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a run of 1000 cells in one guest."""
    folder = tmp_path_factory.mktemp("lab")
    run = store_run(folder, [a_cell(number, 1000.0 + number) for number in range(CELLS)], request.param)
    console = folder / "runs" / run / f"{GUEST}.console"
    console.parent.mkdir()
    console.write_text(CONSOLE)
    return folder


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the peer's packages."""
    folder = tmp_path_factory.mktemp("peer")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--target", str(folder), PEER]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        pytest.skip(f"no package index to install {PEER} from")
    return folder


def shown(what: str, rounds: list[Spent], size: int) -> str:
    seconds = statistics.median(one.seconds for one in rounds)
    memory = max(one.memory for one in rounds) >> 10
    return f"{what}: {seconds:.2f} s of CPU, {size / 1e6:.2f} MB, {memory} MiB"


def test_the_page_of_a_thousand_cells(
    lab: Path, peer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit, page = tmp_path / "junit.xml", tmp_path / "peer.html"
    junit.write_bytes(spent(lab, "report", "--format", "junit").output)
    command = [sys.executable, "-m", "junit2htmlreport", str(junit), str(page)]
    ours, floors, peers = list[Spent](), list[Spent](), list[Spent]()
    for _ in range(ROUNDS):
        ours.append(spent(lab, "report", "--format", "html"))
        floors.append(spent(lab, "report", "--format", "json"))
        peers.append(spent_by(command, tmp_path, {"PYTHONPATH": str(peer)}))
    assert {one.status for one in [*ours, *floors, *peers]} == {0}
    size = len(ours[0].output)
    with capsys.disabled():
        print(f"\n{shown('page', ours, size)}; {shown('JSON', floors, len(floors[0].output))};", end=" ")
        print(f"{shown('junit2html', peers, page.stat().st_size)}; load {os.getloadavg()[0]:.1f}")
    assert ours[0].output.count(b'<details class="cell"') == CELLS
    assert size < LARGEST_PAGE
    assert max(run.memory for run in ours) < LARGEST_MEMORY
