# SPDX-License-Identifier: GPL-2.0-only
"""A guest that is ready for measuring, and cells that are measured in it one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.errors import NotEntered, UnsupportedError
from orchestrator.experiment.cell import Cell
from orchestrator.guest.guest import Guest
from orchestrator.probes.kernel_text import KernelText
from orchestrator.probes.symbols import Symbols
from orchestrator.results.contract import CellRecord, valid_result
from orchestrator.run.benchmark_kind import BootArtifacts, Session
from orchestrator.run.boot_events import GuestBooted
from orchestrator.run.cell_records import changed, without_number
from orchestrator.run.guest_checks import check_cpus, wait_for_clocksource
from orchestrator.run.guest_start import load_kernel_modules, start_guest, unwatched
from orchestrator.steps import step


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
