# SPDX-License-Identifier: GPL-2.0-only
"""A boot as a pure task: a boot, its cells and the keys of its artifacts in; records, events and files out.

A task survives pickling. It touches neither the store nor the progress display nor other boots, so it runs in a thread,
in another process, or on another machine alike.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import GuestExit, HostError, LabError, UnsupportedError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import Boot
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_files import remove_leftovers
from orchestrator.results import profile
from orchestrator.results.contract import CellRecord, Status
from orchestrator.results.faults import check_room, storage_faults
from orchestrator.run.artifacts import BootArtifacts, prepare
from orchestrator.run.comparison import compared
from orchestrator.run.events import CellBegan, Event, Outcome, Progress
from orchestrator.run.kind import BenchmarkKind
from orchestrator.run.preparation import Ready, Refused
from orchestrator.run.record import without_number
from orchestrator.run.started_guest import unwatched
from orchestrator.steps import step

EVENTS_FOLDER = "events"
PROFILES_FOLDER = profile.FOLDER


@dataclass(frozen=True)
class BootTask:
    """A boot to do: those of its cells that have no outcome yet, with artifacts of these ``keys``.

    Logs and whatever else the boot leaves go into ``directory``, which is its own. With ``keep_events`` what recording
    handlers wrote is kept there as CSV. With ``fresh`` its guests are booted, and none is restored. ``guests`` is how
    many guests the boot has had elsewhere: the names of further ones go on from there.
    """

    kind: BenchmarkKind
    boot: Boot
    cells: tuple[Cell[Any], ...]
    keys: Mapping[str, str]
    directory: Path
    keep_events: bool = False
    fresh: bool = False
    guests: int = 0


@dataclass
class Session:
    """What a boot's measurement works with: its task, its artifacts here, and where its events go.

    ``watch`` is called with each guest before it runs.
    """

    task: BootTask
    artifacts: BootArtifacts
    context: BuildContext
    emit: Callable[[Event], None]
    watch: Callable[[Guest], None] = unwatched
    begun: list[str] = field(default_factory=list)
    records: dict[str, CellRecord] = field(default_factory=dict)
    """Of the cells measured in this boot so far, by id."""
    harmless: set[str] = field(default_factory=set)
    """Failed cells that are proved to have left their guest as it was."""
    switched: int = 0
    """Static branches that kernels have switched for themselves between cells of this boot so far."""

    def __post_init__(self) -> None:
        self.context = replace(self.context, say=self.report)

    def report(self, text: str) -> None:
        """Emit progress."""
        self.emit(Progress(text))

    def begin(self, cell: Cell[Any]) -> None:
        """The work of a cell begins."""
        self.begun.append(cell.id)
        self.emit(CellBegan(cell.id))

    def setup(self, cell: Cell[Any]) -> Ready[Any]:
        """What was prepared for a cell that is ready."""
        prepared = self.artifacts.cells[cell.id]
        assert isinstance(prepared, Ready)
        return prepared

    def events_file(self, cell: Cell[Any]) -> Path | None:
        """Where a recording cell's events go, if they are kept; an id may hold slashes, and nothing else special."""
        if not self.task.keep_events:
            return None
        return self.task.directory / EVENTS_FOLDER / f"{cell.id.replace('/', '.')}.csv"

    def profile_file(self, cell: Cell[Any]) -> Path | None:
        """Where a cell's profile goes, if it is to have one."""
        if not cell.profile:
            return None
        return self._profile_file(cell.id)

    def end(self, outcome: Outcome) -> None:
        """Emit a cell's outcome. A profile that was written before its cell failed is of no number: it is removed."""
        if outcome.record.profile is None:
            file = self._profile_file(outcome.record.id)
            with storage_faults(file):
                file.unlink(missing_ok=True)
        with step(f"store {outcome.record.id}"):
            self.emit(outcome)

    def _profile_file(self, cell_id: str) -> Path:
        return self.task.directory / PROFILES_FOLDER / profile.file_name(cell_id)

    def guest_name(self) -> str:
        """The name of the boot's next guest, and of its logs: those of earlier guests are kept."""
        number = self.task.guests + 1
        while True:
            name = f"guest{number}-{self.task.boot.cpu}-{kernel_spec(self.task.boot.kernel).name}"
            if not (self.task.directory / f"{name}.console").exists():
                return name
            number += 1


def run_boot(session: Session) -> None:
    """Give every cell of the session's task an outcome, in as many guests as failures cost.

    This is the failure policy of all kinds of benchmark. A failed cell costs its guest, so that nothing it left behind
    is measured: the cells after it get a fresh one; but for a ``harmless`` one, which is proved to have left nothing.
    An error ends the cells that had begun, or all of them where none had: there is no guest to measure in, and a second
    try would end the same, because the exact clock repeats everything; but for a QEMU that was killed, which costs one
    cell. HostError and UsageError end the run and are raised; so does a full disk, whatever it made fail.
    """
    task = session.task
    release = session.artifacts.kernel.release
    task.directory.mkdir(parents=True, exist_ok=True)
    remove_leftovers(task.directory)
    waiting: list[Cell[Any]] = []
    for cell in task.cells:
        prepared = session.artifacts.cells[cell.id]
        if isinstance(prepared, Refused):
            session.emit(Outcome(without_number(cell, prepared.status, prepared.reason, release)))
        else:
            waiting.append(cell)
    while waiting:
        ended = _in_one_guest(session, waiting)
        if not ended:
            # A further guest would end the same.
            for cell in waiting:
                reason = f"benchmark kind '{task.kind.name}' measured its cells and made no record"
                session.emit(Outcome(without_number(cell, "failed", reason, release)))
            return
        waiting = [cell for cell in waiting if cell.id not in ended]


def _in_one_guest(session: Session, cells: Sequence[Cell[Any]]) -> set[str]:
    """Measure cells until one fails or none is left; the ids of those that have an outcome now."""
    session.begun.clear()
    ended: set[str] = set()
    try:
        with closing(session.task.kind.measure(session, cells)) as records:
            for measured in records:
                check_room(session.task.directory)
                outcome = _compared_in_boot(session, measured)
                ended.add(measured.id)
                session.end(outcome)
                if outcome.record.status == "failed" and measured.id not in session.harmless:
                    break
    except LabError as error:
        status = status_of(error)
        check_room(session.task.directory)
        concerned = [cell for cell in cells if cell.id in session.begun and cell.id not in ended]
        if not concerned:
            # What cannot be supported is a cell's work; a guest that does not boot has failed.
            concerned, status = [cell for cell in cells if cell.id not in ended], "failed"
            if isinstance(error, GuestExit) and error.status == -signal.SIGKILL:
                concerned = concerned[:1]
        for cell in concerned:
            ended.add(cell.id)
            session.end(Outcome(without_number(cell, status, str(error), session.artifacts.kernel.release)))
    return ended


def _compared_in_boot(session: Session, record: CellRecord) -> Outcome:
    """The outcome of a cell, compared where all that it is compared with have been measured in this boot."""
    session.records[record.id] = record
    cell = next(cell for cell in session.task.cells if cell.id == record.id)
    if not all(other in session.records for other in cell.compared_with):
        return Outcome(record)
    session.records[record.id] = compared(session.task.kind, cell, record, session.records)
    return Outcome(session.records[record.id], is_compared=True)


def status_of(error: LabError) -> Status:
    """How a cell ends that met this error. Raises the error where it ends the run."""
    if isinstance(error, HostError | UsageError):
        raise error
    return "unsupported" if isinstance(error, UnsupportedError) else "failed"


def run_task(task: BootTask, context: BuildContext, emit: Callable[[Event], None]) -> None:
    """Do a task that came from another process: with the artifacts of this machine's cache, made here if need be.

    Raises HostError where they are not those that the task names.
    """
    artifacts = prepare(replace(context, say=lambda text: emit(Progress(text))), task.kind, task.boot)
    keys = artifacts.keys
    differing = sorted(name for name in {*task.keys, *keys} if task.keys.get(name) != keys.get(name))
    if differing:
        raise HostError("the artifacts here are not those of the task", detail=differing)
    run_boot(Session(task, artifacts, context, emit))
