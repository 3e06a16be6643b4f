# SPDX-License-Identifier: GPL-2.0-only
"""The interface of a kind of benchmark: what it prepares, measures and compares, and the session of a boot."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.sources import UserSource
from orchestrator.errors import LabError, UnsupportedError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import Boot
from orchestrator.experiment.table_kind import TableKind
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine
from orchestrator.profile.stored import profile_files
from orchestrator.results.contract import CellRecord, Status
from orchestrator.results.faults import storage_faults
from orchestrator.run.boot_events import CellBegan, CellRecorded, Event, Progress
from orchestrator.run.guest_start import unwatched
from orchestrator.steps import step

ArtifactSource = Callable[[str, Mapping[str, object], str, Callable[[Path], None]], Artifact | None]
"""The source of artifacts: ``Cache.obtain``, or a function that only returns existing ones."""


class BenchmarkKind(TableKind):
    """A kind of benchmark, from its tables to its records.

    ``prepare`` and ``measure`` may run in different processes and on different machines: they share artifacts that are
    named by content in the cache.
    """

    def find(self, context: BuildContext, table: Any, obtain: ArtifactSource) -> Any:
        """The table with what only a guest can tell about its cells, kept as artifacts; most kinds need nothing.

        Leaves out what ``obtain`` has no artifact for.
        """
        del context, obtain
        return table

    def refused(self, kernel: Kernel, cells: Sequence[Cell[Any]]) -> Mapping[str, str | None]:
        """Why the kernel does not support a cell, by its id; None where it does.

        The kernel's image, its configuration and its own modules decide that: nothing is built or started.
        """
        del kernel, cells
        return {}

    @abstractmethod
    def prepare(self, context: BuildContext, kernel: Kernel, cells: Sequence[Cell[Any]]) -> Mapping[str, Prepared[Any]]:
        """Fetch and build what the cells of one boot need, by their ids; there are some, and none is ``refused``.

        Raises HostError where nothing can be built.
        """

    @abstractmethod
    def measure(self, session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        """Measure prepared cells in one guest, and yield each record as soon as it is complete.

        Calls ``session.begin`` before each cell's work. A failed record that is not in ``session.guest_still_sound``,
        or an error raised, ends the guest; cells without a record are measured in another one.
        """

    def compare(self, cell: Cell[Any], record: CellRecord, other_cells: Sequence[CellRecord]) -> CellRecord:
        """The record, completed from the records of ``cell.compared_with`` that have numbers.

        Uses no guest. Raises EvidenceError if the comparison proves the record wrong.
        """
        del cell, other_cells
        return record


SetupT = TypeVar("SetupT", covariant=True)


@dataclass(frozen=True)
class Ready(Generic[SetupT]):
    """The cell can be measured: its kind's ``setup``, the modules to load, and notes for the reader."""

    setup: SetupT
    modules: tuple[Module, ...] = ()
    """In the order in which they are loaded."""
    notes: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of the exact content of anything else that the cell needs, by name."""
    sources: Mapping[str, UserSource] = field(default_factory=dict)
    """The user's own files, by role: ``probe``, ``workload``, ``library libmine.so``, ``image``."""
    needs_counter: bool = False
    """Whether only QEMU's counts of instructions can prove the cell."""


@dataclass(frozen=True)
class Refused:
    """The cell has no number for this ``reason``: its kernel cannot have it, or it did not build."""

    status: Status
    reason: str
    modules: tuple[Module, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, UserSource] = field(default_factory=dict)


Prepared = Ready[SetupT] | Refused


def unsupported(reason: str) -> Refused:
    """The kernel's configuration rules the cell out."""
    return Refused("unsupported", reason)


def failed(error: LabError) -> Refused:
    """Something for the cell did not build, or cannot be built for its kernel."""
    return Refused("unsupported" if isinstance(error, UnsupportedError) else "failed", str(error))


@dataclass(frozen=True)
class BootArtifacts:
    """A boot's kernel and machine, and what was prepared for each cell, by cell id.

    ``kernel_modules`` are the kernel's own modules to load first: files by name, in loading order. ``plugin`` counts
    instructions on a machine without a counter to explain a failure; None if it is made on demand.
    """

    kernel: Kernel
    machine: Machine
    cells: Mapping[str, Prepared[Any]]
    kernel_modules: Mapping[str, Path] = field(default_factory=dict)
    plugin: Path | None = None

    @property
    def keys(self) -> dict[str, str]:
        """Keys of the exact content of everything: kernel, initramfs, image, and for each cell modules and the rest."""
        keys = {"kernel": self.kernel.key, "initramfs": self.machine.initramfs.parent.name}
        if self.kernel.spec.parameters:
            keys["parameters"] = " ".join(self.kernel.spec.parameters)
        if self.machine.root is not None:
            keys["image"] = self.machine.root.key
        if self.machine.counter is not None:
            keys["counting plugin"] = self.machine.counter.file.parent.name
        if self.kernel_modules:
            keys |= {disk.name: disk.file.parent.name for disk in self.machine.data}
            keys["loaded modules"] = ", ".join(self.kernel_modules)  # the disk has all modules of the kernel
        for cell, prepared in self.cells.items():
            keys |= {f"{cell}: {module.name}": module.key for module in prepared.modules}
            keys |= {f"{cell}: {name}": key for name, key in prepared.keys.items()}
        return keys


EVENTS_FOLDER = "events"


PROFILES_FOLDER = profile_files.FOLDER


@dataclass(frozen=True)
class BootTask:
    """A boot to do, with those of its cells that have no outcome yet.

    Logs and other files of the boot go into ``directory``, which is its own. With ``keep_events``, recorded events are
    kept there as CSV. With ``fresh``, its guests are booted and never restored. ``guests`` is the number of guests that
    the boot has already had elsewhere, so that names stay unique.
    """

    kind: BenchmarkKind
    boot: Boot
    cells: tuple[Cell[Any], ...]
    directory: Path
    keep_events: bool = False
    fresh: bool = False
    guests: int = 0


@dataclass
class Session:
    """The context of a boot's measurement: its task, its local artifacts, and the receiver of its events.

    ``watch`` is called with each guest before it runs.
    """

    task: BootTask
    artifacts: BootArtifacts
    context: BuildContext
    emit: Callable[[Event], None]
    watch: Callable[[Guest], None] = unwatched
    begun: list[str] = field(default_factory=list)
    records: dict[str, CellRecord] = field(default_factory=dict)
    """The cells measured in this boot so far, by id."""
    guest_still_sound: set[str] = field(default_factory=set)
    """Failed cells that are proved to have left their guest intact."""
    switched: int = 0
    """Static branches that kernels have switched by themselves between cells of this boot so far."""

    def __post_init__(self) -> None:
        self.context = replace(self.context, say=self.report)

    def report(self, text: str) -> None:
        self.emit(Progress(text))

    def begin(self, cell: Cell[Any]) -> None:
        self.begun.append(cell.id)
        self.emit(CellBegan(cell.id))

    def setup(self, cell: Cell[Any]) -> Ready[Any]:
        prepared = self.artifacts.cells[cell.id]
        assert isinstance(prepared, Ready)
        return prepared

    def events_file(self, cell: Cell[Any]) -> Path | None:
        """The file for a recording cell's events, if they are kept; the only special character of ids is a slash."""
        if not self.task.keep_events:
            return None
        return self.task.directory / EVENTS_FOLDER / f"{cell.id.replace('/', '.')}.csv"

    def profile_file(self, cell: Cell[Any]) -> Path | None:
        return self._profile_file(cell.id) if cell.profile else None

    def end(self, outcome: CellRecorded) -> None:
        """Emit a cell's outcome, and remove the profile if the cell failed after writing it."""
        if outcome.record.profile is None:
            file = self._profile_file(outcome.record.id)
            with storage_faults(file):
                file.unlink(missing_ok=True)
                profile_files.plain_file(file).unlink(missing_ok=True)
        with step(f"store {outcome.record.id}"):
            self.emit(outcome)

    def _profile_file(self, cell_id: str) -> Path:
        return self.task.directory / PROFILES_FOLDER / profile_files.file_name(cell_id)

    def guest_name(self) -> str:
        """The name of the boot's next guest and of its logs; those of earlier guests are kept."""
        machine = f"{self.task.boot.guest.cpu}-{self.task.boot.spec.name}"
        names = (f"guest{number}-{machine}" for number in count(self.task.guests + 1))
        return next(name for name in names if not (self.task.directory / f"{name}.console").exists())
