# SPDX-License-Identifier: GPL-2.0-only
"""A boot whose guest is used over a channel: cell after cell in one ready guest."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import UnsupportedError
from orchestrator.experiment.cell import Cell
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import Session
from orchestrator.run.events import GuestBooted
from orchestrator.run.ready_guest import ReadyGuest, ready_guest
from orchestrator.run.record import without_number
from orchestrator.steps import step

TaskT = TypeVar("TaskT")


def attended(
    session: Session, cells: Sequence[Cell[TaskT]], measure_cell: Callable[[ReadyGuest, Cell[TaskT]], CellRecord]
) -> Generator[CellRecord, None, None]:
    """The records of cells measured one after the other in one guest, which is killed at the end.

    A cell that CPU, kernel or module turn out not to support has left the guest as it was.
    """
    boot, name = session.task.boot, session.guest_name()
    session.report(f"booting {kernel_spec(boot.kernel).name} on {boot.cpu}")
    with ready_guest(session.artifacts, session.task.directory, name, session.watch) as ready:
        session.emit(GuestBooted(name, ready.guest.command_line))
        for cell in cells:
            session.begin(cell)
            try:
                with step(f"measure {cell.id}"):
                    record = measure_cell(ready, cell)
            except UnsupportedError as error:
                record = without_number(cell, "unsupported", str(error))
            yield record
