# SPDX-License-Identifier: GPL-2.0-only
"""How long does the site of a thousand runs of a hundred cells take, at first and after one more run?

Printed as ratios to ``list runs``, which reads the store too; what is asserted is what was written, and the memory. The
aims are a minute for the whole site, three seconds after one more run, and 300 MB.

Opt-in: ./lab test tests/benchmarks
"""

from __future__ import annotations

import statistics
from pathlib import Path

import generated_store
import pytest
from generated_store import cost

ROUNDS = 5
MOST_MEMORY = 300.0  # MB
PAGES = generated_store.RUNS + 100 + 3
"""One for each run and metric; the experiment's, the list of all runs, the first one."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    generated_store.generate(folder)
    return folder


def test_a_site_of_a_thousand_runs(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    floor = cost(lab, "list", "runs")
    first = cost(lab, "site", str(tmp_path / "site"))
    assert first.said == f"{PAGES} pages, {PAGES} written, 0 removed\n"
    more = []
    for number in range(ROUNDS):
        generated_store.generate(lab, 1, generated_store.RUNS + number)
        more.append(cost(lab, "site", str(tmp_path / "site")))
        # The run's page, its 100 metrics', and the lists.
        assert more[-1].said.endswith(" pages, 104 written, 0 removed\n")
    none = cost(lab, "site", str(tmp_path / "site"))
    assert ", 0 written," in none.said
    with capsys.disabled():
        seconds, used = (statistics.median(getattr(one, name) for one in more) for name in ("seconds", "used"))
        print(f"\nsite: floor {floor.seconds:.2f} s, CPU {floor.used:.2f} s")
        for what, took, cpu in (
            ("at first", first.seconds, first.used),
            ("after one more run", seconds, used),
            ("without a change", none.seconds, none.used),
        ):
            print(f"{what}: {took:.2f} s, ratio {took / floor.seconds:.1f};", end=" ")
            print(f"CPU {cpu:.2f} s, ratio {cpu / floor.used:.1f}")
        print(f"{max(one.memory for one in (first, *more, none)):.0f} MB")
    assert max(one.memory for one in (first, *more, none)) < MOST_MEMORY
