# SPDX-License-Identifier: GPL-2.0-only
"""Does a run go on only where its experiment still has the cells that it lacks?"""

from __future__ import annotations

from pathlib import Path

import pytest
from loaded_tables import calls_experiment

from orchestrator.errors import UsageError
from orchestrator.experiment.plan import plan
from orchestrator.results.store import RunEntry
from orchestrator.run.runner import check_same_cells

ENTRY = RunEntry("run-1", "x", Path("/runs/1"), "2026-11-22T12:00:00", None, "interrupted", "0" * 64)


def test_cells_that_a_guest_no_longer_finds() -> None:
    planned = plan(calls_experiment(points=["vfs_read"]))
    check_same_cells(ENTRY, [planned.cells[0].id], planned)
    with pytest.raises(UsageError, match="run run-1 lacks cells that its experiment no longer has: 1, a/b for one"):
        check_same_cells(ENTRY, [planned.cells[0].id, "a/b"], planned)
