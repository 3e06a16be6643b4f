# SPDX-License-Identifier: GPL-2.0-only
"""A boot as a pure task: its cells measured in as many guests as failures make necessary.

A task can be pickled. It uses neither the store nor the progress display nor other boots, so it runs equally in a
thread, in another process, or on another machine.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from orchestrator.errors import GuestExit, HostError, LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.guest.guest_files import remove_leftovers
from orchestrator.results.faults import check_room
from orchestrator.run.benchmark_kind import Refused, Session, failed
from orchestrator.run.boot_events import CellRecorded
from orchestrator.run.cell_records import compared, without_number


def run_boot(session: Session) -> None:
    """Give every cell of the session's task an outcome, in as many guests as failures make necessary.

    This is the failure policy of all kinds of benchmark. A failed cell ends its guest, so that nothing it left behind
    is measured, unless it is ``guest_still_sound``: proved to have left nothing. The cells after it get a fresh guest.
    An error fails the cells that had begun, or all if none had: without a guest there is nothing to measure in, and as
    the exact clock repeats everything, so would a second try. A QEMU that was killed fails one cell only. HostError and
    UsageError end the run and are raised, as does a full disk whatever failed because of it.
    """
    task = session.task
    release = session.artifacts.kernel.release
    task.directory.mkdir(parents=True, exist_ok=True)
    remove_leftovers(task.directory)
    waiting: list[Cell[Any]] = []
    for cell in task.cells:
        prepared = session.artifacts.cells[cell.id]
        if isinstance(prepared, Refused):
            session.emit(CellRecorded(without_number(cell, prepared.status, prepared.reason, release)))
        else:
            waiting.append(cell)
    while waiting:
        ended = _in_one_guest(session, waiting)
        if not ended:
            # Another guest would end the same.
            for cell in waiting:
                reason = f"benchmark kind '{task.kind.name}' measured its cells and made no record"
                session.emit(CellRecorded(without_number(cell, "failed", reason, release)))
            return
        waiting = [cell for cell in waiting if cell.id not in ended]


def _in_one_guest(session: Session, cells: Sequence[Cell[Any]]) -> set[str]:
    """Measure cells until one fails or none is left; returns the ids of those with an outcome."""
    session.begun.clear()
    ended: set[str] = set()
    try:
        with closing(session.task.kind.measure(session, cells)) as records:
            for measured in records:
                check_room(session.task.directory)
                session.records[measured.id] = measured
                cell = next(cell for cell in session.task.cells if cell.id == measured.id)
                is_compared = all(cell_id in session.records for cell_id in cell.compared_with)
                if is_compared:  # everything it is compared with was measured in this boot
                    session.records[cell.id] = compared(session.task.kind, cell, measured, session.records)
                outcome = CellRecorded(session.records[cell.id], is_compared)
                ended.add(measured.id)
                session.end(outcome)
                if outcome.record.status == "failed" and measured.id not in session.guest_still_sound:
                    break
    except LabError as error:
        if isinstance(error, HostError | UsageError):
            raise
        refusal = failed(error)
        check_room(session.task.directory)
        concerned = [cell for cell in cells if cell.id in session.begun and cell.id not in ended]
        if not concerned:
            # Unsupported is a property of a cell's work; a guest that does not boot has failed.
            concerned = [cell for cell in cells if cell.id not in ended]
            refusal = replace(refusal, status="failed")
            if isinstance(error, GuestExit) and error.status == -signal.SIGKILL:
                concerned = concerned[:1]
        for cell in concerned:
            ended.add(cell.id)
            session.end(
                CellRecorded(without_number(cell, refusal.status, refusal.reason, session.artifacts.kernel.release))
            )
    return ended
