# SPDX-License-Identifier: GPL-2.0-only
"""Does a full disk end a run, and no cell: neither with a number whose console was cut, nor with a failure?"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from full_disk import room
from namespaces import OWN_MOUNTS, call_with_mount
from test_boot import BOOT, Scripted, record_of, without_machine

from orchestrator.artifacts.cache import BuildContext, Cache
from orchestrator.errors import GuestHang, HostError
from orchestrator.experiment.cell import Cell
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import BootTask, Event, Outcome, Ready, Session, run_boot

MEASURED = 2
"""Cells before the disk is full."""


def fill_up_within_a_boot(disk: str, error: str) -> None:
    """Measure two cells; then the disk is full, and the third is measured, or its guest hangs."""
    events: list[Event] = []
    with ExitStack() as full:

        def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
            for number, cell in enumerate(cells):
                session.begin(cell)
                if number == MEASURED:
                    full.enter_context(room(Path(disk), 4))
                    if error:
                        raise GuestHang(error)
                yield record_of(cell)

        setups = {cell.id: Ready(None) for cell in BOOT.cells}
        artifacts = without_machine(setups)
        task = BootTask(Scripted(measure), BOOT, BOOT.cells, {}, Path(disk) / "boot1")
        session = Session(task, artifacts, BuildContext(Cache(Path(disk) / "cache")), events.append)
        with pytest.raises(HostError, match=r"no room left to keep results: 0\.0 MB are free") as caught:
            run_boot(session)
    assert caught.value.where == str(task.directory)
    assert "--resume" in caught.value.hint
    statuses = [event.record.status for event in events if isinstance(event, Outcome)]
    assert statuses == ["ok"] * MEASURED


@OWN_MOUNTS
@pytest.mark.parametrize("error", ["", "no answer within 60 s"])
def test_the_cell_under_way_has_no_outcome(tmp_path: Path, error: str) -> None:
    mount = ("tmpfs", "size=1m", "tmpfs", tmp_path)
    assert call_with_mount(mount, "test_boot_on_full_disk:fill_up_within_a_boot", tmp_path, error) == ""
