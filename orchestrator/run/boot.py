# SPDX-License-Identifier: GPL-2.0-only
"""A boot as a pure task, from its cells' preparation to their records.

A task can be pickled. It uses neither the store nor the progress display nor other boots, so it runs equally in a
thread, in another process, or on another machine.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.errors import EvidenceError, GuestExit, HostError, LabError, NotEntered, UnsupportedError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import Boot
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_files import remove_leftovers
from orchestrator.guest.machine import machine_facts
from orchestrator.plain_text import shown
from orchestrator.probes.kernel_text import KernelText
from orchestrator.probes.symbols import Symbols
from orchestrator.results.contract import UNITS, CellRecord, Status, valid_result
from orchestrator.results.faults import check_room
from orchestrator.results.parameters import IMPLIED_OPTIONS, KERNEL_RELEASE, USUAL_PARAMETERS
from orchestrator.run.benchmark_kind import BenchmarkKind, BootArtifacts, Ready, Refused, Session, failed, unsupported
from orchestrator.run.events import CellRecorded, GuestBooted
from orchestrator.run.guest_checks import check_cpus, wait_for_clocksource
from orchestrator.run.guests import load_kernel_modules, start_guest, unwatched
from orchestrator.run.machines import counting, machine_of
from orchestrator.run.plan_check import wrong_points
from orchestrator.steps import step


def prepare(context: BuildContext, kind: BenchmarkKind, boot: Boot) -> BootArtifacts:
    """Fetch and build what a boot needs. Raises HostError and the like if there is no kernel to boot.

    A module that does not build, or a point or kernel module that this kernel lacks, fails only its own cells.
    """
    kernel = ready_kernel(context, boot.spec)
    boot, reasons = checked_cells(kind, kernel, boot)
    machine = machine_of(context, kernel, boot)
    refused = {id_: unsupported(reason) for id_, reason in reasons.items()}
    rest = [cell for cell in boot.cells if cell.id not in refused]
    cells = {**refused, **(kind.prepare(context, kernel, rest) if rest else {})}
    if any(isinstance(cell, Ready) and cell.needs_counter for cell in cells.values()) and not machine.counts_code:
        machine = counting(context, machine)
    return BootArtifacts(kernel, machine, cells, loaded_files(kernel, boot.kernel_modules))


def checked_cells(kind: BenchmarkKind, kernel: Kernel, boot: Boot) -> tuple[Boot, Mapping[str, str]]:
    """The boot, and why the kernel cannot have some of its cells, by cell id. Nothing is built or started for this.

    If the kernel lacks some of the requested kernel modules, the boot is without any.
    """
    missing = missing_module_reason(kernel, boot.kernel_modules)
    if missing is not None:
        return boot.without_kernel_modules(), {cell.id: missing for cell in boot.cells}
    wrong = wrong_points(kernel, boot.cells)
    refused = kind.refused(kernel, [cell for cell in boot.cells if cell.id not in wrong])
    return boot, {**wrong, **{id_: reason for id_, reason in refused.items() if reason is not None}}


def without_number(cell: Cell[Any], status: Status, reason: str, release: str | None = None) -> CellRecord:
    """The outcome of a cell without a number, with the reason, and its kernel's release if known."""
    known = {} if release is None else {KERNEL_RELEASE: release}
    return CellRecord(**identity(cell), parameters={**cell.parameters, **known}, status=status, reason=reason)


def identity(cell: Cell[Any]) -> dict[str, Any]:
    """The fields that identify a cell, without its parameters."""
    same = ("id", "table", "cpu", "smp", "probe", "handler", "benchmark", "metric", "clock")
    return {**{name: getattr(cell, name) for name in same}, "kernel": cell.spec.name, "unit": UNITS[cell.clock]}


_NAMED_OPTIONS = 4
"""A record's text has at most 200 characters; lockdep brings twenty options."""


def kernel_facts(kernel: Kernel) -> dict[str, str]:
    """What records say of their kernel."""
    facts: dict[str, str] = {KERNEL_RELEASE: kernel.release}
    if kernel.spec.parameters:
        facts[USUAL_PARAMETERS] = " ".join(machine_facts().kernel_parameters)
    if kernel.implied:
        implied = [f"{option}={value}" for option, value in kernel.implied.items()]
        facts[IMPLIED_OPTIONS] = ", ".join(shown(implied, _NAMED_OPTIONS, "{} more (build kernel lists them)"))
    return facts


def changed(record: CellRecord, **fields: object) -> CellRecord:
    """The record with some fields replaced, validated again. Raises EvidenceError if it violates the contract."""
    with valid_result():
        return CellRecord.model_validate({**dict(record), **fields})


def compared(
    kind: BenchmarkKind, cell: Cell[Any], record: CellRecord, outcomes: Mapping[str, CellRecord]
) -> CellRecord:
    """The record as its kind completes it; a failed one if the comparison proves it wrong.

    ``outcomes`` are records by id, including those of ``cell.compared_with``; records without a number are skipped.
    """
    if record.status != "ok":
        return record
    cells = [outcomes[cell_id] for cell_id in cell.compared_with if cell_id in outcomes]
    try:
        return kind.compare(cell, record, [other_cell for other_cell in cells if other_cell.status == "ok"])
    except EvidenceError as error:
        return without_number(cell, "failed", str(error))


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


@dataclass(frozen=True)
class ReadyGuest:
    """A running guest and what was read from it once for all its cells."""

    guest: Guest
    artifacts: BootArtifacts
    symbols: Symbols


@contextmanager
def ready_guest(
    context: BuildContext,
    artifacts: BootArtifacts,
    directory: Path,
    name: str,
    *,
    fresh: bool = False,
    watch: Callable[[Guest], None] = unwatched,
) -> Iterator[ReadyGuest]:
    """Start a guest for measuring as ``start_guest`` does, and load its kernel modules; it is killed at the end.

    Raises GuestError, or EvidenceError for a guest that fails the checks.
    """
    with start_guest(context, Guest(artifacts.machine, directory, name), watch=watch, fresh=fresh) as guest:
        if guest.restored_from is None:  # a restored one was checked already
            check_cpus(guest)
            wait_for_clocksource(guest)
        load_kernel_modules(guest, artifacts.kernel_modules)
        yield ReadyGuest(guest, artifacts, Symbols.at_start(guest, artifacts.kernel_modules))


TaskT = TypeVar("TaskT")


def measure_in_one_guest(
    session: Session, cells: Sequence[Cell[TaskT]], measure_cell: Callable[[ReadyGuest, Cell[TaskT]], CellRecord]
) -> Generator[CellRecord, None, None]:
    """Yield the records of cells measured one after the other in one guest, which is killed at the end.

    Each cell must leave the kernel's text unchanged. This includes cells that CPU, kernel or module turn out not to
    support, or whose calls never enter the probed function: they do not end the guest.
    """
    boot, name = session.task.boot, session.guest_name()
    fresh, release = session.task.fresh, session.artifacts.kernel.release
    session.report(f"starting {boot.spec.name} on {boot.guest.cpu}")
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
                # An EvidenceError of the following comparison is raised, and ends the guest.
                session.guest_still_sound.add(cell.id)
            with step("compare the kernel's text"), valid_result():
                unchanged = text.unchanged()
                session.switched += len(unchanged.switched)
            yield changed(record, text=unchanged) if record.status == "ok" else record
