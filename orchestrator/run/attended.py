# SPDX-License-Identifier: GPL-2.0-only
"""A boot whose guest is used over a channel: cell after cell in one ready guest."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import NotEntered, UnsupportedError
from orchestrator.experiment.cell import Cell
from orchestrator.probes.kernel_text import KernelText
from orchestrator.results.contract import CellRecord
from orchestrator.results.validity import valid_result
from orchestrator.run.boot import Session
from orchestrator.run.events import GuestBooted
from orchestrator.run.ready_guest import ReadyGuest, ready_guest
from orchestrator.run.record import changed, without_number
from orchestrator.steps import step

TaskT = TypeVar("TaskT")


def attended(
    session: Session, cells: Sequence[Cell[TaskT]], measure_cell: Callable[[ReadyGuest, Cell[TaskT]], CellRecord]
) -> Generator[CellRecord, None, None]:
    """The records of cells measured one after the other in one guest, which is killed at the end.

    Each cell leaves the kernel's text as it was, also one that CPU, kernel or module turn out not to support, or whose
    calls never enter the probed function: such cells do not cost the guest.
    """
    boot, name = session.task.boot, session.guest_name()
    fresh, release = session.task.fresh, session.artifacts.kernel.release
    session.report(f"starting {kernel_spec(boot.kernel).name} on {boot.cpu}")
    with ready_guest(
        session.context, session.artifacts, session.task.directory, name, fresh=fresh, watch=session.watch
    ) as ready:
        session.emit(GuestBooted(name, ready.guest.command_line, restored_from=ready.guest.restored_from))
        text = KernelText(ready.guest, ready.symbols)
        for cell in cells:
            session.begin(cell)
            try:
                with step(f"measure {cell.id}"):
                    record = measure_cell(ready, cell)
            except UnsupportedError as error:
                record = without_number(cell, "unsupported", str(error), release)
            except NotEntered as error:
                record = without_number(cell, "failed", str(error), release)
                # An EvidenceError of the comparison that follows is raised, and ends the guest.
                session.harmless.add(cell.id)
            yield _proved(session, record, text)


def _proved(session: Session, record: CellRecord, text: KernelText) -> CellRecord:
    """The record with the evidence that its cell left the kernel's text alone. Raises EvidenceError where not."""
    with step("compare the kernel's text"), valid_result():
        unchanged = text.unchanged()
        session.switched += len(unchanged.switched)
    return changed(record, text=unchanged) if record.status == "ok" else record
