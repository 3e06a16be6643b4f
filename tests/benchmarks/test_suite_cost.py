# SPDX-License-Identifier: GPL-2.0-only
"""Does the daily suite start more guests than it did when its costs were last recorded?

Guests are what it takes its time for, and how many there are does not depend on the host. Where a test needs more of
them, another one gives some up, or the costs are recorded anew: ``./lab test --bare --costs=tests/suite_costs.yaml``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from suite_costs import recorded_costs

ROOT = Path(__file__).resolve().parents[2]
REPEATED = 5
"""Guests of tests that look again: at a CPU that served an interrupt just then, for a clock's pace on a busy host."""


def test_the_daily_suite_starts_no_more_guests_than_recorded(tmp_path: Path) -> None:
    costs = tmp_path / "costs.yaml"
    done = subprocess.run(
        [ROOT / "lab", "test", "--bare", f"--costs={costs}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    assert recorded_costs(costs)["guests"] <= recorded_costs()["guests"] + REPEATED
